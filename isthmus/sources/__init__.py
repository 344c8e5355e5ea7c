"""Step 1 of the way of the data: raw bytes to checked arrays, three splits and a fingerprint. One file per family.

What the families share registers nothing: ``reading`` (files and what is wrong with them), ``imaging`` (pictures),
``tables`` (columns), ``caching`` (what is decoded once) and ``splitting`` (parts, checks, fingerprint).
"""
