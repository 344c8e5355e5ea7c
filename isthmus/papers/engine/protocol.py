"""What a reproduction is made of: studies beside printed rows, and the claims that they are asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError
from isthmus.papers import Paper
from isthmus.papers.engine.networks import Network
from isthmus.studies.fronts import Candidate
from isthmus.studies.statistics import Answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Printed:
    """A row of a paper: its columns, and its network with the settings that a candidate must have to be it."""

    columns: Mapping[str, Any]
    network: Network


@dataclass(frozen=True)
class Part:
    """One study of a reproduction and the printed rows that it stands beside."""

    title: str
    study: StudyConfig
    differences: Sequence[str]
    """From the paper's set-up, in plain words."""
    table: str = ""
    printed_title: str = ""
    """Of the table, with its data: ``Table 8, ImageNet-32``."""
    printed: Mapping[str, Printed] = field(default_factory=dict)
    same_setup: bool = False
    """The data and the protocol are the paper's, so that measured and printed values may be compared."""
    subject: str = ""
    """The architecture that the paper proposes: its networks are compared with their rivals of any other."""
    rival_agrees_in: Sequence[str] = ()
    """The settings that a rival must share, where a study varies more than sizes."""
    fields: Sequence[str] = ("d_z", "d_h", "depth")
    """The settings that tell its networks apart, for tables."""


@dataclass(frozen=True)
class Measured:
    """A part after its training. ``networks`` are the candidates under the ids of their rows, in the same order."""

    part: Part
    candidates: Sequence[Candidate]
    networks: Sequence[Network]
    folders: Sequence[Path]

    def of(self, shape: str) -> list[Network]:
        return [network for network in self.networks if network.shape == shape]


@dataclass(frozen=True)
class Quantity:
    """A value that is no network's quality: as printed, as measured or computed here, and how the two compare."""

    id: str
    what: str
    published: Any
    measured: Any
    word: str = ""
    note: str = ""


@dataclass(frozen=True)
class Findings:
    """What the tests of claims and the figures read."""

    parts: Sequence[Measured]
    analysis: Mapping[str, Any] = field(default_factory=dict)
    """What an exhibit measures beyond its records: ``rows`` (by id), ``quantities``, a ``summary`` in sentences, and
    the ``differences`` from the paper that it brings along."""


@dataclass(frozen=True)
class Given:
    """What an analysis starts from."""

    parts: Sequence[Measured]
    scale: Scale
    data_dir: Path | None = None


class NotStored(UserError):
    """A stored result does not hold a metric that a claim needs: only the records do."""


@dataclass(frozen=True)
class Judgement:
    """Whether a claim holds in the measurement and, by the same test, in the printed numbers, and why."""

    measured: Answer
    published: Answer | Literal["not printed"]
    numbers: Mapping[str, Any]
    because: str
    """The measured numbers in words; of what was not addressed, the reason."""
    printed_because: str = ""


@dataclass(frozen=True)
class ClaimTest:
    """A claim and its test. The docstring of ``judge`` states the test, and is printed with the answer."""

    statement: str
    judge: Callable[[Findings], Judgement]
    supported: str = ""
    """Whether the paper's own tables bear it out, as noted with the published numbers."""


def tests_of(
    paper: Paper,
    names: Iterable[str],
    judges: Mapping[str, Callable[[Findings], Judgement]],
    statements: Mapping[str, str],
) -> dict[str, ClaimTest]:
    """Tests by name: of the paper's numbered claims, or of statements that have no number there."""
    return {
        name: ClaimTest(paper.claims[name].statement, judges[name], paper.claims[name].supported)
        if name in paper.claims
        else ClaimTest(statements[name], judges[name])
        for name in names
    }


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure that can be measured again."""

    printed_as: str
    shows: str
    parts: Callable[[Scale], Sequence[Part]]
    tests: Mapping[str, ClaimTest]
    draw: Callable[[Findings], Figure]
    analyse: Callable[[Given], Mapping[str, Any]] | None = None
    """Measures what the records do not hold. An exhibit without parts has nothing else."""
    first: Callable[[Scale], Sequence[StudyConfig]] | None = None
    """Studies that are carried out before, because the parts are made of their runs: of a tokenizer's."""


@dataclass(frozen=True)
class Exhibits:
    """Makes the exhibits of a paper, by their ids: T1, F3."""

    paper: Paper
    judges: Mapping[str, Callable[[Findings], Judgement]]
    statements: Mapping[str, str]
    sharing: Mapping[str, tuple[str, str]]
    """Of ids without an entry of their own in the published data: how they are printed, and whose entry is theirs."""

    def __call__(
        self,
        name: str,
        parts: Callable[[Scale], Sequence[Part]],
        *tests: str,
        draw: Callable[[Findings], Figure],
        analyse: Callable[[Given], Mapping[str, Any]] | None = None,
        first: Callable[[Scale], Sequence[StudyConfig]] | None = None,
    ) -> Exhibit:
        printed_as, entry = self.sharing.get(name, ("", name))
        table = self.paper.tables.get(entry)
        published = self.paper.figures[entry] if table is None else table
        shows = self.paper.figures[entry].shows if table is None else table.caption
        found = tests_of(self.paper, tests, self.judges, self.statements)
        return Exhibit(printed_as or published.printed_as, shows, parts, found, draw, analyse, first)
