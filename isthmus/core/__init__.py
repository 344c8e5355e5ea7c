"""Errors, files, draws, records, settings and the registry: what every other part may import."""
