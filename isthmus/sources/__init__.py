"""Raw files to checked arrays, three splits and a fingerprint; one file per source.

Shared code that registers no source: ``files``, ``images``, ``tables``, ``dialects``, ``cells``, ``encoding``,
``targets``, ``streaming``, ``cache``, ``splits``, ``pictures`` and ``puzzles``.
"""
