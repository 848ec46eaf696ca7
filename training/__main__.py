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

import sys
from collections.abc import Sequence
from importlib import import_module

from interventune.storage.command_line import did_you_mean, guarded

from .configs import checked_configs

TRAIN = ("fit", "validate", "test", "predict")
SWEEPS = {"sweep": "run", "select": "select"}
"""The module of each command over many runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake prints one line on stderr and returns exit code 2."""
    command, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if command in ("-h", "--help"):
        print(str(__doc__).strip())
        return 0
    if command in SWEEPS:
        module = import_module(f"interventune.training.sweep.{SWEEPS[command]}")
        return int(module.main(arguments))
    if command in TRAIN:
        return run([command, *arguments])
    names = *TRAIN, *SWEEPS
    hint = did_you_mean(command, names) or f"; choose from {', '.join(names)}"
    print(f"error: {command}: no such command{hint}", file=sys.stderr)
    return 2


def run(arguments: list[str]) -> int:
    """Run a Lightning command. `--debug` prints the traceback of an error."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]

    def train() -> None:
        configs = checked_configs(arguments)  # before slow imports
        from .cli import main

        main(configs)

    try:
        return guarded(train, debug)
    except RuntimeError as error:
        from .modules.fine_tuning import DivergedError

        if debug or not isinstance(error, DivergedError):
            raise
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
