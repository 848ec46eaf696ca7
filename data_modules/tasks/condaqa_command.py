"""`python -m data_modules condaqa`: pairs of passages that answer a question in opposite ways.

The library side is `negation.py`; here are flags and what the user is told.
"""

from __future__ import annotations

import argparse
from collections import Counter

EXAMPLE = """example:
  python -m data_modules condaqa --input condaqa_dev.jsonl --output pairs.jsonl
  python -m evaluation negation --checkpoint ot=A.ckpt ibt=B.ckpt --pairs pairs.jsonl --output DIR
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own flags; --output and --overwrite are every command's."""
    parser.add_argument("--input", required=True, metavar="FILE", help="CondaQA, as JSON Lines")


def run(arguments: argparse.Namespace) -> str:
    """Write the pairs; a line for the user."""
    from data_modules.tasks.condaqa import TURNING, read_condaqa, write_pairs

    found = read_condaqa(arguments.input)
    count = write_pairs(found.pairs, arguments.output)
    kinds = Counter(pair.edit for pair in found.pairs)
    made = ", ".join(f"{kinds[edit]} {edit}" for edit in TURNING)
    told = ", ".join(f"{n} {reason}" for reason, n in found.left_out.items()) or "none"
    return f"{arguments.output}: {count} pairs ({made}); edited passages left out: {told}"
