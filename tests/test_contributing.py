"""CONTRIBUTING's examples: made in a copy of the checkout, where the commands know them."""

import json
import math
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pytest

from interventune.data_modules.encoding.tokenizers import build_tokenizer
from interventune.data_modules.stories.questions import vocabulary
from tests.evaluation.cells import Cells
from tests.support.processes import Started, run_module

ROOT = Path(__file__).resolve().parents[1]
ROOMS = "configs data_modules evaluation interventune losses metrics models storage training"
BLOCK = re.compile(r"^```(python|yaml|diff) (\S+)\n(.*?)^```$", re.M | re.S)
"""Language and file; the whole file, or of a `diff` lines of it, with `@@` between changes."""
ROWS = [
    {"passage": "anna is in the attic .", "question": "is anna in the attic ?", "answer": True},
    {"passage": "ben is in the bank .", "question": "is ben in the attic ?", "answer": False},
    {"passage": "clara is in the bank .", "question": "is clara in the bank ?", "answer": True},
]


class Copy:
    """A copy of the checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ROOMS.split():
            shutil.copytree(ROOT / name, root / name, symlinks=True)

    def change(self, path: Path, diff: str) -> None:
        """Make the changes of a diff; the lines that it shows must stand in the file once."""
        text = path.read_text()
        for change in diff.split("@@\n"):
            lines = change.splitlines(keepends=True)
            parts = ([line[1:] for line in lines if line[0] in signs] for signs in (" -", " +"))
            before, after = map("".join, parts)
            assert text.count(before) == 1, f"{path.name} does not hold\n{before}"
            text = text.replace(before, after)
        path.write_text(text)

    def run(self, command: str) -> None:
        """`python -m ...`, as a user of the copy."""
        module, *words = shlex.split(command)
        code, output = Started(run_module, module, words, self.root, OMP_NUM_THREADS="1").end()
        assert code == 0, output


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """With all examples in it, and a file of the new data set."""
    copy = Copy(tmp_path_factory.mktemp("copy"))
    for language, name, content in BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text()):
        path = copy.root / name
        assert path.exists() == (language == "diff"), name
        copy.change(path, content) if language == "diff" else path.write_text(content)
    (copy.root / "boolq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return copy


@pytest.fixture(scope="module")
def checkpoint(copy: Copy) -> Path:
    """The new backbone, trained on the new data set with the new intervention."""
    build_tokenizer("bert", vocabulary()).save_pretrained(copy.root / "words")
    copy.run("""training fit -c configs/experiments/stories_ibt.yaml --run.version=0 --run.wandb=off
        -c configs/backbones/albert_base.yaml --backbone.checkpoint=random
        --backbone.tokenizer=words "--backbone.config={vocab_size: 320, hidden_size: 32}"
        --data.train_qa=boolq.jsonl "--data.val_qa={main: boolq.jsonl}" --data.qa_batch_size=2
        "--data.interventions={train: [os, os_q], watch: [os, os_q], shift: [os_q]}"
        --trainer.accelerator=cpu --trainer.enable_progress_bar=false""")
    return copy.root / "runs/stories_ibt/0/checkpoints/last.ckpt"


def test_a_new_backbone_data_set_and_intervention(checkpoint: Path) -> None:
    run = checkpoint.parents[1]
    assert "architecture: albert" in (run / "config.yaml").read_text()
    metrics = json.loads((run / "metrics.json").read_text())
    assert {metrics[f"val/{name}/n"] for name in ("qa", "qa/os_q", "shift/cls/os_q")} == {len(ROWS)}
    assert metrics["val/shift/cls/os_q/mean"] < 1


def test_a_new_intervention(copy: Copy) -> None:
    flags = "--input stories:conversation_dev --variant os_q --output rows.jsonl"
    copy.run(f"data_modules perturb {flags}")
    rows = [json.loads(line) for line in (copy.root / "rows.jsonl").read_text().splitlines()]
    assert {row["variant"] for row in rows} == {"os_q"}
    assert all(row["context"].endswith(row["question"]) for row in rows)


def test_new_protocols(copy: Copy, checkpoint: Path) -> None:
    flags = "--qa boolq.jsonl --device cpu"
    copy.run(f"evaluation diversity --checkpoint {checkpoint} {flags} --output one")
    cells = Cells(copy.root / "one")
    cells.check()
    lines = (copy.root / "one" / "examples.jsonl").read_text().splitlines()
    counts = Counter(json.loads(line)["answer"] for line in lines)
    expected = -sum(n / len(ROWS) * math.log(n / len(ROWS)) for n in counts.values())
    assert cells("entropy", checkpoint="last") == pytest.approx(expected)
    both = f"a={checkpoint} b={checkpoint}"
    copy.run(f"evaluation agreement --checkpoint {both} {flags} --output two")
    cells = Cells(copy.root / "two")
    assert cells("agreement", checkpoint="b", against="a") == 1
    assert cells.n("agreement", checkpoint="b", against="a") == len(ROWS)
    report = (copy.root / "two" / "report.md").read_text()
    assert "b" in report.split("With the first checkpoint")[1]
