"""python -m models export CHECKPOINT FOLDER: a checkpoint of ours as a Hugging Face folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """0 when the folder is written, 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m models", description="Work with trained checkpoints.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("export", help="write a .ckpt as a Hugging Face folder")
    command.add_argument("checkpoint", help="a .ckpt of python -m training")
    command.add_argument("folder", type=Path, help="a new folder, for from_pretrained")
    args = parser.parse_args(argv)

    from models.export import export

    try:
        export(args.checkpoint, args.folder)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{args.folder}: load it with AutoModelForQuestionAnswering.from_pretrained({str(args.folder)!r})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
