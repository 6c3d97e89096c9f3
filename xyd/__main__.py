"""``python -m xyd`` and ``torchrun -m xyd``: the same as the command ``xyd``."""

from __future__ import annotations

import sys

from xyd.cli import main

if __name__ == "__main__":
    sys.exit(main())
