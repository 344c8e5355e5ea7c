"""What every page reads: the home's index, the commands that the studio started, opened data and plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isthmus.studio.index import Index, Run, Study
from isthmus.studio.jobs import Jobs
from isthmus.studio.opened import Opened, Shelf
from isthmus.studio.start import Plans


class Missing(Exception):
    """There is no such page."""


@dataclass
class Studio:
    """What all pages read."""

    index: Index
    jobs: Jobs
    shelf: Shelf
    plans: Plans

    def run(self, identity: str) -> Run:
        if identity not in self.index.runs:
            self.index.update()  # it may be new
        if identity not in self.index.runs:
            raise Missing
        return self.index.runs[identity]

    def study(self, name: str) -> Study:
        found = self.index.studies.get(name)
        if found is None:
            raise Missing
        return found

    def find_opened(self, identity: str) -> Opened:
        found = self.shelf.find(identity)
        if found is None:
            raise Missing
        return found

    def stamp(self) -> tuple[Any, ...]:
        """Differs when something changed that a page may show."""
        jobs = self.jobs.newest()
        states = tuple((job.id, job.started, job.asked_to_stop, self.jobs.is_running(job)) for job in jobs)
        return self.index.version, states
