"""``python -m isthmus.timm train.py DATA --model isthmus_…`` runs a script written for timm with our models registered.

With several processes: ``torchrun --nproc-per-node 2 -m isthmus.timm train.py …``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import isthmus.timm  # noqa: F401  registers the models


def main() -> None:
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        raise SystemExit("isthmus: give a script, such as timm's: python -m isthmus.timm train.py [ARGUMENTS]")
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)  # so that a script can import the files beside it
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
