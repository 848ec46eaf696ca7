"""usage: interventune train COMMAND -c EXPERIMENT -c BACKBONE [--KEY=VALUE ...]

commands:
  fit         train, and write checkpoints and metrics to runs/EXPERIMENT/version_N
  validate    measure a checkpoint on the validation sets
  test        measure a checkpoint on the test sets
  predict     write a checkpoint's predictions
  sweep       train once for each combination of some settings
  select      test the best models of a sweep

interventune train fit -c EXPERIMENT --help lists the flags of that experiment.

example:
  interventune train fit -c stories_ibt -c tiny_roberta --trainer.max_epochs=2
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from interventune.storage.command_line import one_line
from interventune.training.configs import checked_configs

COMMANDS = ("fit", "validate", "test", "predict", "sweep", "select")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake prints one line on stderr and returns exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else "--help"
    if command in ("-h", "--help"):
        print(str(__doc__).strip())
        return 0
    if command not in COMMANDS:
        print(
            f"error: {command}: no such command; choose from {', '.join(COMMANDS)}", file=sys.stderr
        )
        return 2
    if command in ("sweep", "select"):
        module = import_module(
            f"interventune.training.sweep.{'run' if command == 'sweep' else 'select'}"
        )
        return int(module.main(arguments[1:]))
    return run(arguments)


def run(arguments: list[str]) -> int:
    """Run a Lightning command. `--debug` prints the traceback of an error."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        checked_configs(arguments)  # before slow imports
        from interventune.training.cli import main as train

        train(arguments)
    except Exception as error:
        # By name: exceptions of Lightning and of our modules are only known once imported.
        code = {"MisconfigurationException": 2, "DivergedError": 1}.get(type(error).__name__)
        if debug or (code is None and not isinstance(error, ValueError | OSError)):
            raise
        print(f"error: {str(error) if code else one_line(error)}", file=sys.stderr, flush=True)
        return code or 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
