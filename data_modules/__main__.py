"""Write data sets: `interventune data COMMAND --help` describes a command."""

import sys
from collections.abc import Sequence
from pkgutil import resolve_name

from interventune.storage.command_line import Parser, call, guarded
from interventune.storage.documents import own_yaml

COMMANDS = own_yaml(__file__, dict[str, tuple[str, str]], "commands.yaml")
"""Each command's function in this package, and its line in the help."""
EXAMPLE = (
    "example:\n  interventune data perturb --input dev.json --variant ts_r --output dev_ts_r.jsonl"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 2 after `error: ...` on stderr for a user's mistake."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = build_parser(argv).parse_args(argv)
    return guarded(lambda: print(call(arguments.function, vars(arguments))), arguments.debug)


def build_parser(argv: Sequence[str]) -> Parser:
    """Build the parser; only the command named in `argv` is imported and declares its flags."""
    parser = Parser(prog="interventune data", description=__doc__, epilog=EXAMPLE)
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    for name, (path, summary) in COMMANDS.items():
        function = resolve_name(f"interventune.data_modules.{path}") if name in argv[:1] else None
        commands.add_parser(name, help=summary, function=function).set_defaults(function=function)
    return parser


if __name__ == "__main__":
    sys.exit(main())
