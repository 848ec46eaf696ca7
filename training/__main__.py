"""python -m training fit|validate|test|predict -c EXPERIMENT -c BACKBONE [--key=value ...]

Also demo, sweep and select, each with its own --help.
"""

from __future__ import annotations

import sys

from training.lean_start import only_shows, show


def main() -> int:
    """Run the command; a user's mistake is one line on stderr and exit code 2."""
    if sys.argv[1:2] == ["demo"]:
        from training.demo import main as demo

        return demo(sys.argv[2:])
    if sys.argv[1:2] == ["sweep"]:
        from training.sweep.command import main as sweep

        return sweep(sys.argv[2:])
    if sys.argv[1:2] == ["select"]:
        from training.sweep.selection import main as select

        return select(sys.argv[2:])

    from training.config_files import check_config_files

    try:
        check_config_files(sys.argv[1:])
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if only_shows(sys.argv[1:]):
        return show(run, sys.argv[1:])
    return run()


def run() -> int:
    """The subcommands of Lightning."""
    from pytorch_lightning.utilities.exceptions import MisconfigurationException

    from training.cli import main as cli
    from training.stopping.processes import is_child, lost_contact, tell

    try:
        cli()
    except (ValueError, OSError, MisconfigurationException) as error:
        if "--debug" in sys.argv:
            raise
        tell(f"error: {error}")
        return 2
    except RuntimeError as error:
        if "--debug" in sys.argv or not lost_contact(error):
            raise
        if not is_child():  # a child leaves it to the first process
            tell(f"error: another process of this run is gone: {str(error).splitlines()[0]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
