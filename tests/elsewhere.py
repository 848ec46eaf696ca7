"""The command of another checkout, in its folder:   PYTHON -m tests.elsewhere FOLDER MODULE ...

The libraries that `tests.forking.python()` imported are kept; the packages of the checkout are imported anew.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    folder, *sys.argv = sys.argv[1:]
    packages = {path.name for path in Path(folder).iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
    os.chdir(folder)
    sys.path.insert(0, folder)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
