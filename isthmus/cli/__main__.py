"""``python -m isthmus.cli`` is ``isthmus``."""

from isthmus.cli import main

if __name__ == "__main__":
    main()
