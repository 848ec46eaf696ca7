"""Commands that only show something (`--print_config`, `--help`) start without what they do not use.

`import torchmetrics`, and so `import pytorch_lightning`, imports scipy, matplotlib and transformers wherever
they are installed, for metrics of audio, plots and BERTScore: half of the time that `--print_config` would
take. It has no switch for that, but asks lightning_utilities which packages there are; for the length of that
one import the answer is no. Nothing is trained in such a process, so nobody misses them; only a class of the
user's own may import such a metric, which is why a command that fails starts again in full.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import PackageNotFoundError

OPTIONAL = ("scipy", "matplotlib", "transformers", "PIL")
"""What torchmetrics imports where it is installed."""

FULL = "import sys; from training.__main__ import run; sys.argv[0] = sys.argv.pop(1); sys.exit(run())"


def only_shows(args: Sequence[str]) -> bool:
    """Whether a command line asks for a configuration or for help, and for nothing to be run."""
    flags = [argument.partition("=")[0] for argument in args]
    return any(flag in ("--print_config", "--help", "-h") or flag.endswith(".help") for flag in flags)


def show(run: Callable[[], int], args: Sequence[str]) -> int:
    """`run` in a lean process; where that fails, the same arguments in a process with everything."""
    with without_optional():
        import torchmetrics  # noqa: F401
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            code = run()
    except SystemExit as stop:  # how argparse ends, well or badly
        code = 0 if stop.code is None else int(stop.code)
    if code:
        return subprocess.call([sys.executable, "-c", FULL, sys.argv[0], *args])
    print(said.getvalue(), end="", file=sys.stderr)
    return 0


@contextmanager
def without_optional() -> Iterator[None]:
    """Within, lightning_utilities finds none of the optional packages, and forgets so afterwards."""
    from lightning_utilities.core import imports

    version, find_spec = imports._version, imports.find_spec

    def lean_version(distribution_name: str) -> str:
        if distribution_name in OPTIONAL:
            raise PackageNotFoundError(distribution_name)
        return version(distribution_name)

    imports._version = lean_version
    imports.find_spec = lambda name, *rest: None if name.split(".")[0] in OPTIONAL else find_spec(name, *rest)
    try:
        yield
    finally:
        imports._version, imports.find_spec = version, find_spec
        imports.package_available.cache_clear()
        imports.module_available.cache_clear()
