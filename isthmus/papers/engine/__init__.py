"""Tables and figures of papers, measured again and shown beside what is printed.

The ``exhibits.py`` of a paper's folder has ``TABLES``: ids such as T8 to an
:class:`~isthmus.papers.engine.exhibit.Exhibit`. What a study must be, what differs from the paper, and how each claim
is tested is said there; what is measured, judged and written is the same for all.
"""

from isthmus.papers.engine.reproduce import (
    default_folder,
    find_exhibit,
    judge_below,
    list_exhibits,
    list_reproductions,
    reproduce,
)

__all__ = ["default_folder", "find_exhibit", "judge_below", "list_exhibits", "list_reproductions", "reproduce"]
