"""What can be read off a trained run: one measurement per file, written as ``analysis/NAME.json`` beside its record."""
