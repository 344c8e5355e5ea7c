"""``isthmus`` and ``python -m isthmus``."""

from __future__ import annotations

import sys

from isthmus.core.interrupts import end_on_signals, exit_code


def main() -> None:
    """Run the command line; a signal while it is imported ends the command as any later one does."""
    with end_on_signals():
        try:
            from isthmus.cli.main import main as run
        except KeyboardInterrupt:
            sys.exit(exit_code())
    run()


if __name__ == "__main__":
    main()
