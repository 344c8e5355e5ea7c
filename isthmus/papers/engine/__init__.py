"""Reproduces tables and figures of papers and shows measured beside published results.

The ``exhibits.py`` of a paper's package has ``TABLES``: ids such as T8 to an
:class:`~isthmus.papers.engine.exhibit.Exhibit`, which names its studies, claim tests, measurements and figure.
"""
