"""One file per architecture; start with ``hourglass.py``."""
