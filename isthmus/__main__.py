"""``python -m isthmus`` is ``isthmus``."""

from isthmus.cli.main import main

if __name__ == "__main__":
    main()
