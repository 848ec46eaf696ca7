"""python -m interventune COMMAND ...: the `interventune` command, without installing it."""

import sys

from .command import main

sys.exit(main())
