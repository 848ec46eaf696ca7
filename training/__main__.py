"""python -m training COMMAND ...

  fit, validate, test, predict   -c EXPERIMENT -c BACKBONE [--key=value ...]
  sweep, select                  many runs, and the best of them

Each command has its own --help.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from storage.command_line import one_line
from training.configs import checked_configs

CLI_COMMANDS = ("fit", "validate", "test", "predict")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command in CLI_COMMANDS:
        return run(arguments)
    if command == "sweep":
        from training.sweep.run import main as sweep

        return sweep(rest)
    if command == "select":
        from training.sweep.select import main as select

        return select(rest)
    if command in ("-h", "--help", ""):
        print(__doc__)
        return 0
    commands = ", ".join((*CLI_COMMANDS, "sweep", "select"))
    print(f"error: {command}: expected one of {commands}", file=sys.stderr)
    return 2


def run(arguments: list[str]) -> int:
    """The commands of Lightning. `--debug` shows where in the code an error arose."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        arguments = checked_configs(arguments)
        # After that check, because to import them takes seconds.
        from training.cli import run_command

        run_command(arguments)
    except (ValueError, OSError) as error:
        if debug:
            raise
        return report(one_line(error), 2)
    except Exception as error:
        if debug or "training.cli" not in sys.modules:  # or it cannot be imported
            raise
        from training.stopping.finite_loss import DivergedError

        # Of Lightning, for what contradicts itself in a configuration; without importing it for other errors.
        if type(error).__name__ == "MisconfigurationException":
            return report(str(error), 2)
        if isinstance(error, DivergedError):
            return report(str(error), 1)
        raise
    return 0


def report(message: str, code: int) -> int:
    """Print an error, and return the exit code."""
    print(f"error: {message}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
