"""The data of a reproduction: a table or figure, the studies behind it, its printed rows, and tests of claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from isthmus.core.config import StudyConfig, override, parse_override, study_config
from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.core.record import read_metrics
from isthmus.papers import load_paper
from isthmus.papers.engine.differences import list_differences
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.protocols import Kind, Protocol
from isthmus.studies.fronts import Candidate
from isthmus.studies.statistics import Answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANGEABLE = ("train.device", "train.devices", "train.strategy", "train.precision", "train.compile", "threads")
Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True)
class Part:
    """One study of a reproduction and the printed rows beside it."""

    title: str
    study: StudyConfig
    notes: Sequence[str] = ()
    """Differences from the paper that the two configs do not show."""
    paper_study: Callable[[], StudyConfig] | None = None
    """The same study at the paper's scale; None where this is it."""
    table: str = ""
    printed_title: str = ""
    """The table with its data: ``Table 8, ImageNet-32``."""
    printed: Mapping[str, Network] = field(default_factory=dict)
    """By id; a candidate is recognised as one of them by its settings."""
    protocol: Protocol | None = None
    """What the paper prints about the experiment."""
    kind: Kind = "printed"
    """The protocol that the study follows at the paper's scale."""
    comparable: bool = True
    """False for a study of ours, whose networks the paper does not train."""
    subject: str = ""
    """The architecture that the paper proposes; each of its networks is compared with a rival of another one."""
    rival_agrees_in: Sequence[str] = ()
    """The settings that a rival must share, in a study that varies more than sizes."""
    fields: Sequence[str] = ("d_z", "d_h", "depth")
    """The model settings shown in tables."""

    @property
    def source(self) -> str:
        return self.study.base.source.name

    @cached_property
    def printed_source(self) -> str:
        """The paper's data, for which those of this part may stand."""
        return self.paper_study().base.source.name if self.paper_study else self.source

    @cached_property
    def contradictions(self) -> list[str]:
        """What differs from the paper's set-up; computed on first use, because this builds the paper's study."""
        if self.paper_study:
            return list_differences(self.study, self.paper_study())
        return self.protocol.contradictions(self.study, self.kind) if self.protocol else []

    @property
    def same_setup(self) -> bool:
        """Whether nothing contradicts the paper, so that measured and printed values can be compared."""
        return self.comparable and self.paper_study is None and not self.contradictions

    @cached_property
    def differences(self) -> list[str]:
        """The contradictions, what the paper does not print, and what the configs do not show."""
        at_scale = self.protocol is not None and self.paper_study is None
        open_ = self.protocol.describe_unprinted(self.study, self.kind) if self.protocol and at_scale else []
        return [*self.contradictions, *open_, *self.notes]

    def follow(self, kind: Kind) -> Part:
        """The part at the paper's scale under one of the two protocols."""
        if self.protocol is None or kind == self.kind:
            return self
        study = self.protocol.apply(self.study, kind)
        return replace(self, study=study.model_copy(update={"name": f"{study.name}-{kind}"}), kind=kind)

    def change(self, overrides: Sequence[str]) -> Part:
        """The part with settings of the user's machine: where the data are, how many seeds, on which devices."""
        if not overrides:
            return self
        given = self.study.model_dump(mode="json", exclude_defaults=True)
        for path, value in map(parse_override, overrides):
            name = ".".join(path)
            if name == "seeds" and isinstance(value, int) and value >= 1:
                given["seeds"] = list(range(value))
            elif (path[0] == "source" and name != "source.name") or name in CHANGEABLE:
                given["base"] = override(given["base"], {name: value})
            else:
                allowed = "source.… (not its name), seeds=NUMBER, " + ", ".join(CHANGEABLE)
                raise UserError(f"{name} cannot be changed in a reproduction; {allowed} can")
        given["name"] = f"{given['name']}-{digest(sorted(overrides), 6)}"
        return replace(self, study=study_config(given))


@dataclass(frozen=True)
class MeasuredPart:
    """A part after training. ``networks`` are the candidates under the ids of their rows, in the same order."""

    part: Part
    candidates: Sequence[Candidate]
    networks: Sequence[Network]
    folders: Sequence[Path]

    def of(self, shape: str) -> list[Network]:
        return [network for network in self.networks if network.shape == shape]

    def curves(self, metric: str) -> Iterator[tuple[Network, list[list[tuple[float, float]]]]]:
        """Each network with the validation values of a metric by epoch, run by run."""
        for network, folders in self.runs():
            logs = [read_metrics(folder, sealed=True) for folder in folders]
            yield network, [[(x["epoch"], x[metric]) for x in log if x["split"] == "validation"] for log in logs]

    def runs(self) -> Iterator[tuple[Network, list[Path]]]:
        """Each network with the folders of its runs."""
        folders = {folder.name: folder for folder in self.folders}
        for network, candidate in zip(self.networks, self.candidates, strict=True):
            yield network, [folders[run] for run in candidate.run_ids]


@dataclass(frozen=True)
class Quantity:
    """A value other than a network's quality: as printed, as measured or computed here, and how the two compare."""

    id: str
    what: str
    published: Any
    measured: Any
    word: str = ""
    note: str = ""
    decimals: int | None = None
    """Of the published value, as printed."""


@dataclass(frozen=True)
class Findings:
    """The input of claim tests and figures."""

    parts: Sequence[MeasuredPart]
    analysis: Mapping[str, Any] = field(default_factory=dict)
    """What an exhibit measures beyond its run records: ``rows`` (by id), ``quantities``, ``summary`` sentences, and
    ``differences`` from the paper."""


@dataclass(frozen=True)
class AnalysisInput:
    """The input of an exhibit's analysis."""

    parts: Sequence[MeasuredPart]
    scale: Scale
    data_dir: Path | None = None


@dataclass(frozen=True)
class Judgement:
    """Whether a claim holds in the measurement and, by the same test, in the printed numbers, and why."""

    measured: Answer
    published: Answer | Literal["not printed"]
    numbers: Mapping[str, Any]
    because: str
    """The measured numbers in words, or the reason why the claim was not addressed."""
    printed_because: str = ""


@dataclass(frozen=True)
class ClaimTest:
    """A claim and its test. The docstring of ``judge`` states the test and is printed with the answer."""

    id: str
    statement: str
    judge: Callable[[Findings], Judgement]
    supported: str = ""
    """Whether the paper's own tables support it (``published.yaml``)."""

    def __call__(self, findings: Findings) -> Judgement:
        return self.judge(findings)


Analysis = Callable[[AnalysisInput], Mapping[str, Any]]
Parts = Callable[[Scale], Sequence[Part]]
Draw = Callable[[Findings], "Figure"]


@dataclass(frozen=True)
class Exhibit:
    """A table or figure that can be reproduced."""

    id: str
    printed_as: str
    shows: str
    tests: Mapping[str, ClaimTest]
    parts: Parts
    draw: Draw
    analyse: Analysis | None = None
    """Measures what run records do not hold. For an exhibit without parts it is the whole measurement."""
    opens_runs: bool = True
    """Whether ``analyse`` needs the folders of runs, which stored results do not hold, and not only their configs."""
    first: Callable[[Scale], Sequence[StudyConfig]] | None = None
    """Studies that must run before the parts, such as a tokenizer's."""


class Exhibits:
    """Makes the exhibits of a paper by id, such as T1 or F3.

    ``shared`` is for ids without a published entry of their own: how they are printed, and the id of the entry they
    share.
    """

    def __init__(self, paper: str, shared: Mapping[str, tuple[str, str]]) -> None:
        self.paper, self.shared = load_paper(paper), shared

    def __call__(
        self, name: str, *tests: ClaimTest, draw: Draw, parts: Parts = lambda scale: (), printed_as: str = "",
        shows: str = "", **more: Any,
    ) -> Exhibit:  # fmt: skip
        """An exhibit that the paper does not have brings ``printed_as`` and ``shows``."""
        if not shows:
            title, entry = self.shared.get(name, ("", name))
            table = self.paper.tables.get(entry)
            printed_as = title or (table or self.paper.figures[entry]).printed_as
            shows = table.caption if table else self.paper.figures[entry].shows
        return Exhibit(name, printed_as, shows, {test.id: test for test in tests}, parts, draw, **more)


def by_id(*exhibits: Exhibit) -> dict[str, Exhibit]:
    return {exhibit.id: exhibit for exhibit in exhibits}
