"""Tables and figures of papers, measured again and shown beside what is printed.

A paper is one module here, named as in `isthmus.papers`, with ``TABLES``: ids such as T8 to an
:class:`~isthmus.reproduction.protocol.Exhibit`. What a study must be, what differs from the paper, and how each claim
is tested is said there; what is measured, judged and written is the same for all.
"""

from isthmus.reproduction.command import find_exhibit, judge_below, list_exhibits, list_reproductions, reproduce

__all__ = ["find_exhibit", "judge_below", "list_exhibits", "list_reproductions", "reproduce"]
