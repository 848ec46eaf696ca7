"""python -m interventune COMMAND ...: as `interventune`, without its installation."""

import sys

from interventune.command import main

sys.exit(main())
