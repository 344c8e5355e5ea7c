"""The public calls that need several parts of the package; the commands of `cli` call the same functions."""
