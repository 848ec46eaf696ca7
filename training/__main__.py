"""python -m training fit|validate|test|predict|demo -c EXPERIMENT -c BACKBONE [--key=value ...]"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command; a user's mistake is one line on stderr and exit code 2."""
    if sys.argv[1:2] == ["demo"]:
        from training.demo import main as demo

        return demo(sys.argv[2:])

    from training.cli import main as cli

    try:
        cli()
    except (ValueError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
