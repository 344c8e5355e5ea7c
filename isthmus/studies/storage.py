"""The trials of a study in a database that several processes share.

Run records are the truth, and this is their index: a study whose database was lost proposes the same candidates again
and finds their records. Trials are in Optuna's tables, so that ``optuna-dashboard`` shows them, with parameters and
named objectives that only it reads. Everything that we read has a checksum: damage ends in a line that says how to
rebuild the database, never in another result.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
import sqlalchemy as sql
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import IntegrityError

from isthmus.core.errors import UserError
from isthmus.core.files import digest
from isthmus.studies.database import TABLES
from isthmus.studies.leases import LeaseLost, Leases
from isthmus.studies.proposals import Proposal, State, Trial
from isthmus.studies.sampling import parameters_of

_STATES: dict[TrialState, State] = {
    TrialState.RUNNING: "open", TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip
_TRIALS = sql.Table(
    "isthmus_trials",
    TABLES,
    sql.Column("study", sql.String(200), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("key", sql.String(64), nullable=False),
    sql.Column("seal", sql.String(64), nullable=False),
    sql.UniqueConstraint("study", "key"),
)
_FAILURE, _RUNG, _DECISION, _ENDED = "failure ", "rung ", "decision ", "ended"
_OPTUNA_TABLES = (
    "studies", "study_directions", "study_user_attributes", "study_system_attributes", "trials",
    "trial_user_attributes", "trial_system_attributes", "trial_params", "trial_values", "trial_intermediate_values",
    "trial_heartbeats",
)  # fmt: skip


class Storage(Leases):
    """One study in a database. Its name is free until it is begun."""

    def __init__(self, url: str, name: str, maximise: bool) -> None:
        super().__init__(url, name)
        self._directions = [StudyDirection.MAXIMIZE if maximise else StudyDirection.MINIMIZE, StudyDirection.MINIMIZE]
        self._study: optuna.Study | None = None
        self._trials: dict[int, tuple[FrozenTrial, Trial]] = {}

    # Reading

    def stored_config(self) -> dict[str, Any] | None:
        """The config with which the study was begun, or None."""
        with self._explain_errors():
            study = self._find()
            attributes = {} if study is None else study.user_attrs
            found = attributes.get("config")
            if found is None:
                if self._seals() or (study is not None and study.get_trials(deepcopy=False)):
                    raise self.damage("it has trials and no config")
                return None
            if attributes.get("seal", digest(found)) != digest(found):
                raise self.damage("the config was altered")
            return dict(json.loads(found))

    def trials(self) -> list[Trial]:
        """All trials by number, always the same objects, brought up to date."""
        with self._explain_errors():
            study = self._find()
            if study is None:
                return []
            # Other processes add trials meanwhile: what was sealed before is there, and what is there is sealed after.
            before = self._seals()
            found = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
            after = self._seals()
            if not before.keys() <= found.keys() <= after.keys() or found.keys() != set(range(len(found))):
                raise self.damage("trials are missing")
            return [self._update(trial, *after[number]) for number, trial in sorted(found.items())]

    def _update(self, found: FrozenTrial, key: str, seal: str) -> Trial:
        """Optuna returns the same object for a trial that has ended, so that it is checked once."""
        known, trial = self._trials.get(found.number, (None, None))
        if trial is None or known is not found:
            read = self._read(found, key, seal)
            trial = trial or read
            for name in ("state", "quality", "rungs", "decisions", "failures", "reason"):
                setattr(trial, name, getattr(read, name))
            self._trials[found.number] = found, trial
        return trial

    def _read(self, found: FrozenTrial, key: str, seal: str) -> Trial:
        """A trial whose checksums are right."""
        given, state = found.user_attrs, _STATES[found.state]
        fields = {name: given[name] for name in ("model", "key", "space", "varied", "generation", "costs")}
        if key != given["key"] or seal != digest(fields | {"memory": found.system_attrs}):
            raise self.damage(f"trial {found.number} was altered")
        notes: dict[str, Any] = {}
        for name in (name for name in given if name.startswith((_FAILURE, _RUNG, _DECISION, _ENDED))):
            notes[name] = given[name]["value"]
            if given[name]["seal"] != _seal(key, name, notes[name]):
                raise self.damage(f"{name!r} of trial {found.number} was altered")
        rungs, later = (
            {int(name.removeprefix(kind)): value for name, value in notes.items() if name.startswith(kind)}
            for kind in (_RUNG, _DECISION)
        )
        first = found.system_attrs.get("decision")
        ended = notes.get(_ENDED) if state != "open" else None
        if state != "open" and (ended is None or ended != _describe_end(state, found.values, rungs, ended["reason"])):
            raise self.damage(f"how trial {found.number} ended was altered")
        return Trial(
            number=found.number,
            settings=fields.pop("model"),
            **fields,
            memory=found.system_attrs,
            state=state,
            quality=found.values[0] if found.values and ended else None,
            rungs=rungs,
            decisions=({} if first is None else {first[0]: first[1]}) | later,
            failures={name.removeprefix(_FAILURE): why for name, why in notes.items() if name.startswith(_FAILURE)},
            reason=ended["reason"] if ended else "",
        )

    def _find(self) -> optuna.Study | None:
        if self._study is None:
            with contextlib.suppress(KeyError):
                self._storage.get_study_id_from_name(self.name)
                self._study = optuna.load_study(study_name=self.name, storage=self._storage)
        return self._study

    def _study_id(self) -> int:
        if (study := self._find()) is None:
            raise self.damage("the study is gone")
        return study._study_id

    def _seals(self) -> dict[int, tuple[str, str]]:
        with self._engine.connect() as connection:
            rows = connection.execute(sql.select(_TRIALS).where(_TRIALS.c.study == self.name)).all()
        return {row.number: (row.key, row.seal) for row in rows}

    # Writing, each time under a lease

    def begin(self, config: Mapping[str, Any], objectives: Sequence[str] = ()) -> dict[str, Any]:
        """The config with which the study was begun: ours, if nobody began it before.

        ``objectives`` are the names of quality and cost, for Optuna's dashboard.
        """
        while True:
            with contextlib.suppress(LeaseLost), self.alone("begin"):
                self._begin(config)
                self._name_objectives(list(objectives))
                return self.stored_config() or {}

    def _name_objectives(self, names: list[str]) -> None:
        with self._explain_errors(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental in older versions of Optuna
            if names and self._study is not None and self._study.metric_names != names:
                self._write_under("begin", self._study.set_metric_names, names)

    def _begin(self, config: Mapping[str, Any]) -> None:
        with self._explain_errors():
            begun = self.stored_config()
            if self._find() is None:
                with contextlib.suppress(DuplicatedStudyError):
                    self._write_under("begin", self._storage.create_new_study, self._directions, self.name)
                if self._find() is None:
                    raise self.damage("it holds parts of a study that is gone")
            assert self._study is not None
            attributes = self._study.user_attrs
            text = json.dumps(config, sort_keys=True) if begun is None else str(attributes["config"])
            for name, value in (("config", text), ("seal", digest(text))):
                if attributes.get(name) != value:
                    self._write_under("begin", self._storage.set_study_user_attr, self._study._study_id, name, value)

    def add(
        self,
        proposal: Proposal,
        generation: int,
        memory: Mapping[str, Any],
        costs: Mapping[str, float],
        distributions: Mapping[str, BaseDistribution] | None = None,
    ) -> None:
        """Add a trial. Its model is in the user attributes, where we read it.

        ``distributions`` are of the parameters that Optuna's dashboard shows.
        """
        attributes = {
            "model": proposal.settings, "key": proposal.key, "space": proposal.space, "varied": dict(proposal.varied),
            "generation": generation, "costs": dict(costs),
        }  # fmt: skip
        attributes, memory = json.loads(json.dumps([attributes, dict(memory)]))
        params = parameters_of(proposal, distributions or {})
        trial = create_trial(
            state=TrialState.RUNNING,
            params=params,
            distributions={name: (distributions or {})[name] for name in params},
            user_attrs=attributes,
            system_attrs=dict(memory),
        )
        number = sql.select(sql.func.count()).where(_TRIALS.c.study == self.name).scalar_subquery()
        row = {"study": self.name, "key": proposal.key, "seal": digest(attributes | {"memory": memory})}
        also = sql.insert(_TRIALS).values(row | {"number": number})
        with self._explain_errors():
            try:
                self._write_under(self._acting, self._storage.create_new_trial, self._study_id(), trial, also=also)
            except IntegrityError:
                raise LeaseLost(f"trial {proposal.key} was added by another process") from None

    def note_rung(self, number: int, rung: int, quality: float) -> None:
        self._note(self._acting, number, f"{_RUNG}{rung}", float(quality))
        # For Optuna's dashboard; we read the note, which has a checksum.
        self._write(self._acting, self._storage.set_trial_intermediate_value, number, rung, quality)

    def note_decision(self, number: int, decision: int, epoch: int) -> None:
        """A decision to continue a trial until an epoch. The one that starts it is in the trial's memory."""
        self._note(self._acting, number, f"{_DECISION}{decision}", epoch)

    def note_failure(self, number: int, run: str, reason: str) -> None:
        """Each run under its own name, so that two processes do not overwrite each other's notes."""
        self._note(run, number, f"{_FAILURE}{run}", reason)

    def end(self, number: int, state: State, values: tuple[float, float] | None = None, reason: str = "") -> None:
        """Note how a trial ended. The first process to say so decides; the others have found the same."""
        rungs = self.trials()[number].rungs
        self._note(self._acting, number, _ENDED, _describe_end(state, values, rungs, reason))
        ended = next(theirs for theirs, ours in _STATES.items() if ours == state)
        self._write(self._acting, self._storage.set_trial_state_values, number, ended, values)

    def _note(self, lease: str, number: int, name: str, value: Any) -> None:
        key = self._trials[number][1].key if number in self._trials else self.trials()[number].key
        content = {"value": value, "seal": _seal(key, name, value)}
        self._write(lease, self._storage.set_trial_user_attr, number, name, content)

    def _write(self, lease: str, write: Any, number: int, *values: Any) -> None:
        with self._explain_errors(), contextlib.suppress(UpdateFinishedTrialError):
            trial = self._storage.get_trial_id_from_study_id_trial_number(self._study_id(), number)
            self._write_under(lease, write, trial, *values)

    def drop(self) -> None:
        """Forget the study, so that it is built again from its records. Refused while others work on it."""
        with self._explain_errors(), self._engine.begin() as connection:
            if not self._is_unused(connection):
                raise UserError(f"another process is at work on the study {self.name!r}; stop it before --rebuild")
            tables = sql.MetaData()
            tables.reflect(connection, only=_OPTUNA_TABLES)
            studies, trials = tables.tables["studies"], tables.tables["trials"]
            # All but the rows of other studies: rows whose trial or study is gone would turn up in new ones.
            others = sql.select(studies.c.study_id).where(studies.c.study_name != self.name)
            kept = {"study_id": others, "trial_id": sql.select(trials.c.trial_id).where(trials.c.study_id.in_(others))}
            for table in reversed(tables.sorted_tables):
                column = "study_id" if "study_id" in table.c else "trial_id"
                connection.execute(sql.delete(table).where(table.c[column].not_in(kept[column])))
            connection.execute(sql.delete(_TRIALS).where(_TRIALS.c.study == self.name))
        self._study, self._trials = None, {}


def _seal(key: str, name: str, value: Any) -> str:
    return digest([key, name, value], 16)


def _describe_end(state: State, values: Any, rungs: Mapping[int, float], reason: str) -> dict[str, Any]:
    """The note on the end of a trial, as JSON returns it."""
    return {
        "state": state,
        "values": [float(value) for value in values] if values else None,
        "rungs": {str(rung): quality for rung, quality in sorted(rungs.items())},
        "reason": reason,
    }
