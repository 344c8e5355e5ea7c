"""The memory of a study that several processes share: its trials, in Optuna's tables, and who is at work on what.

SQLite by default, PostgreSQL by URL. The run records are the truth, and this is their index: a study whose database
was lost asks for the same candidates again and finds their records. ``optuna-dashboard`` shows it as it is.

Three things keep the index right. Time is the database's, so that no process's clock decides who holds a claim. Every
write names a claim, and its transaction ends only while that claim is still the writer's: a process that was held up
beyond its lease cannot write any more (``Overtaken``). And what is written carries a checksum, so that damage is a
line that says how to build the database again (``Damaged``), never another result.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
import sqlalchemy as sql
from optuna.exceptions import DuplicatedStudyError, OptunaError, StorageInternalError, UpdateFinishedTrialError
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from isthmus.core.errors import UserError
from isthmus.core.files import digest, make_folder
from isthmus.core.record import flatten
from isthmus.studies.judging import Proposal

State = Literal["open", "finished", "pruned", "failed"]
_STATES: dict[TrialState, State] = {
    TrialState.RUNNING: "open", TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip
_TABLES = sql.MetaData()
_CLAIMS = sql.Table(
    "isthmus_leases",
    _TABLES,
    sql.Column("name", sql.String(200), primary_key=True),
    sql.Column("owner", sql.String(200), nullable=False),  # empty: nobody
    sql.Column("token", sql.Integer, nullable=False),  # grows with every new owner
    sql.Column("expires", sql.Float(53), nullable=False),
)
_TRIALS = sql.Table(
    "isthmus_trials",
    _TABLES,
    sql.Column("study", sql.String(200), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("key", sql.String(64), nullable=False),
    sql.Column("seal", sql.String(64), nullable=False),  # empty for a trial that an older version added
    sql.UniqueConstraint("study", "key"),
)
LEASE = 60.0
"""Seconds after which a claim that is not renewed is anybody's. A dead process of this machine loses it at once."""
_OPENINGS = 20
_FAILURE, _RUNG, _ENDED = "failure ", "rung ", "ended"
_ACCEPTED = "sqlite:///FILE and postgresql://USER:PASSWORD@HOST:PORT/NAME are accepted"


class Overtaken(Exception):
    """Another process has taken the claim under which this one acts: it must look again before it does anything."""


class Unusable(UserError):
    """It answers, and is no database of ours: damaged, or another version's."""


class Damaged(UserError):
    """What the database says cannot be true."""


@dataclass(frozen=True)
class Entry:
    """A trial as the database has it."""

    number: int
    state: State
    generation: int
    key: str
    space: int | None
    model: Mapping[str, Any]
    varied: Mapping[str, Any]
    memory: Mapping[str, Any]
    """What the sampler wrote on it."""
    costs: Mapping[str, float]
    quality: float | None
    rungs: Mapping[int, float]
    failures: Mapping[str, str]
    """Runs that failed without leaving a record, and why."""
    reason: str


class Storage:
    """One study in a database. Until it is begun, nothing of it is there, and its name is free."""

    def __init__(self, url: str, name: str, maximise: bool) -> None:
        self.url, self.name = _complete(url), name
        self.owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:8]}"
        self._directions = [StudyDirection.MAXIMIZE if maximise else StudyDirection.MINIMIZE, StudyDirection.MINIMIZE]
        self._study: optuna.Study | None = None
        self._known: dict[int, tuple[FrozenTrial, Entry]] = {}
        self._held: dict[str, int] = {}
        self._acting = ""
        try:
            self._storage = _opened(self.url)
        except ImportError as error:
            install = "pip install 'isthmus[postgresql]'" if self.url.startswith("postgresql+psycopg:") else _ACCEPTED
            raise UserError(f"{_shown(url)} needs a driver that is not installed: {install} ({error})") from None
        except (SQLAlchemyError, OptunaError, LookupError, ValueError, OSError, RuntimeError) as error:
            known = f"; {_ACCEPTED}" if isinstance(error, ArgumentError | ValueError) else ""
            kind = UserError if _is_loss(error) else Unusable
            raise kind(f"the database {_shown(url)} cannot be used: {_cause(error)}{known}") from None
        self._engine = self._storage.engine
        weakref.finalize(self, self._engine.dispose)  # or the server would learn of our end by accident
        self._fence = _Fence()
        sql.event.listen(self._storage.scoped_session, "before_commit", self._fence.check)

    # What is there

    def begun(self) -> dict[str, Any] | None:
        """The config that the study was begun with, if it was."""
        with self._answering():
            study = self._found()
            attributes = {} if study is None else study.user_attrs
            found = attributes.get("config")
            if found is None:
                if self._rows() or (study is not None and study.get_trials(deepcopy=False)):
                    raise self.damaged("it has trials and no config")
                return None
            if attributes.get("seal", digest(found)) != digest(found):
                raise self.damaged("the config was altered")
            return dict(json.loads(found))

    def entries(self) -> list[Entry]:
        with self._answering():
            study = self._found()
            if study is None:
                return []
            # Others add trials meanwhile: all that was sealed before is there, all that is there is sealed after.
            before = self._rows()
            trials = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
            after = self._rows()
            if not after and "seal" not in study.user_attrs:
                after = {number: _Row(trial.user_attrs["key"], "") for number, trial in trials.items()}
            if not before.keys() <= trials.keys() <= after.keys() or trials.keys() != set(range(len(trials))):
                raise self.damaged("trials are missing")
            return [self._entry(trial, after[number]) for number, trial in sorted(trials.items())]

    def _entry(self, trial: FrozenTrial, row: _Row) -> Entry:
        """Optuna gives the same object for a trial that ended, which is then checked once."""
        if trial.number not in self._known or self._known[trial.number][0] is not trial:
            self._known[trial.number] = (trial, self._checked(trial, row))
        return self._known[trial.number][1]

    def _found(self) -> optuna.Study | None:
        if self._study is None:
            with contextlib.suppress(KeyError):
                self._storage.get_study_id_from_name(self.name)
                self._study = optuna.load_study(study_name=self.name, storage=self._storage)
        return self._study

    def _number(self) -> int:
        if (study := self._found()) is None:
            raise self.damaged("the study is gone")
        return study._study_id

    def _rows(self) -> dict[int, _Row]:
        with self._engine.connect() as connection:
            rows = connection.execute(sql.select(_TRIALS).where(_TRIALS.c.study == self.name)).all()
        return {row.number: _Row(row.key, row.seal) for row in rows}

    def _checked(self, trial: FrozenTrial, row: _Row) -> Entry:
        given, state = trial.user_attrs, _STATES[trial.state]
        content = {name: given[name] for name in _FIELDS} | {"memory": trial.system_attrs}
        if row.key != given["key"] or row.seal not in ("", digest(content)):
            raise self.damaged(f"trial {trial.number} was altered")
        noted = {name: self._unsealed(trial.number, row.key, name, value) for name, value in given.items()
                 if name.startswith((_FAILURE, _RUNG, _ENDED))}  # fmt: skip
        rungs = {int(name.removeprefix(_RUNG)): value for name, value in noted.items() if name.startswith(_RUNG)}
        if not row.seal:
            rungs = {**trial.intermediate_values, **rungs}
        ended = noted.get(_ENDED) if state != "open" else None
        is_told = state == "open" or (ended is None and not row.seal)  # older versions do not say it twice
        if not is_told and (ended is None or ended != _ending(state, trial.values, rungs, ended["reason"])):
            raise self.damaged(f"how trial {trial.number} ended was altered")
        return Entry(
            number=trial.number,
            state=state,
            quality=trial.values[0] if trial.values and state != "open" else None,
            rungs=rungs,
            failures={name.removeprefix(_FAILURE): why for name, why in noted.items() if name.startswith(_FAILURE)},
            reason="" if state == "open" else ended["reason"] if ended else given.get("reason", ""),
            **content,
        )

    def _unsealed(self, number: int, key: str, name: str, content: Any) -> Any:
        if not isinstance(content, dict):  # an older version's
            return content
        if content["seal"] != _seal(key, name, content["value"]):
            raise self.damaged(f"{name!r} of trial {number} was altered")
        return content["value"]

    def damaged(self, what: str) -> Damaged:
        return Damaged(
            f"the database {_shown(self.url)} is damaged: {what}; `isthmus study … --rebuild` builds it again from the "
            "records"
        )

    # What is told, each under a claim

    def begin(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config that the study was begun with; ours, if we begin it."""
        while True:
            with contextlib.suppress(Overtaken), self.alone("begin"):
                self._begin(config)
                return self.begun() or {}

    def _begin(self, config: Mapping[str, Any]) -> None:
        with self._answering():
            begun = self.begun()
            if self._found() is None:
                with contextlib.suppress(DuplicatedStudyError):
                    self._under("begin", self._storage.create_new_study, self._directions, self.name)
                if self._found() is None:
                    raise self.damaged("it holds parts of a study that is gone")
            assert self._study is not None
            self._adopt()
            attributes = self._study.user_attrs
            text = json.dumps(config, sort_keys=True) if begun is None else str(attributes["config"])
            for name, value in (("config", text), ("seal", digest(text))):
                if attributes.get(name) != value:
                    self._under("begin", self._storage.set_study_user_attr, self._study._study_id, name, value)

    def _adopt(self) -> None:
        """Give trials that an older version added their place in our table."""
        entries = self.entries()
        if entries and not self._rows():
            rows = [{"study": self.name, "number": entry.number, "key": entry.key, "seal": ""} for entry in entries]
            with self._engine.begin() as connection:
                connection.execute(sql.insert(_TRIALS), rows)

    def add(self, proposal: Proposal, generation: int, memory: Mapping[str, Any], costs: Mapping[str, float]) -> None:
        """A new trial. Its model stands in the user attributes, where Optuna's dashboard shows it."""
        attributes = {
            "model": settings_of(proposal), "key": proposal.key, "space": proposal.space,
            "varied": dict(proposal.varied), "generation": generation, "costs": dict(costs),
        }  # fmt: skip
        attributes, memory = json.loads(json.dumps([attributes, dict(memory)]))
        trial = create_trial(state=TrialState.RUNNING, user_attrs=attributes, system_attrs=dict(memory))
        row = {"study": self.name, "key": proposal.key, "seal": digest(attributes | {"memory": memory})}
        with self._answering():
            try:
                self._under(self._acting, self._storage.create_new_trial, self._number(), trial, row=row)
            except IntegrityError:
                raise Overtaken(f"trial {proposal.key} was added by another process") from None

    def note_rung(self, number: int, rung: int, quality: float) -> None:
        self._note(self._acting, number, f"{_RUNG}{rung}", float(quality))
        # For Optuna's dashboard; we read the one with the checksum.
        self._tell(self._acting, self._storage.set_trial_intermediate_value, number, rung, quality)

    def note_failure(self, number: int, run: str, reason: str) -> None:
        """Each under a name of its own: two processes that note one each do not overwrite each other's."""
        self._note(run, number, f"{_FAILURE}{run}", reason)

    def end(self, number: int, state: State, values: tuple[float, float] | None = None, reason: str = "") -> None:
        """How a trial ended. Whoever says so first is right; the others found the same."""
        rungs = self.entries()[number].rungs
        self._note(self._acting, number, _ENDED, _ending(state, values, rungs, reason))
        ended = next(theirs for theirs, ours in _STATES.items() if ours == state)
        self._tell(self._acting, self._storage.set_trial_state_values, number, ended, values)

    def _note(self, claim: str, number: int, name: str, value: Any) -> None:
        key = self._known[number][1].key if number in self._known else self.entries()[number].key
        content = {"value": value, "seal": _seal(key, name, value)}
        self._tell(claim, self._storage.set_trial_user_attr, number, name, content)

    def _tell(self, claim: str, write: Any, number: int, *values: Any) -> None:
        with self._answering(), contextlib.suppress(UpdateFinishedTrialError):
            trial = self._storage.get_trial_id_from_study_id_trial_number(self._number(), number)
            self._under(claim, write, trial, *values)

    def _under(self, claim: str, write: Any, *values: Any, row: Mapping[str, Any] | None = None) -> None:
        """A transaction of Optuna's that ends only if the claim is still ours by then."""
        if claim not in self._held:
            raise Overtaken(f"{claim!r} is not claimed")
        self._fence.guard = _Guard(f"{self.name}/{claim}", self.owner, self._held[claim], row)
        try:
            write(*values)
        finally:
            self._fence.guard = None

    def drop(self) -> None:
        """Forget the study: it can be built again from its records. Refused while others are at work on it."""
        with self._answering(), self._engine.begin() as connection:
            ours = _CLAIMS.c.name.startswith(f"{self.name}/", autoescape=True)
            for held in connection.execute(sql.select(_CLAIMS).where(ours)).all():
                if self._is_anothers(held, self._now(connection)):
                    raise UserError(f"another process is at work on the study {self.name!r}; stop it before --rebuild")
            tables = sql.MetaData()
            tables.reflect(connection, only=_OPTUNA_TABLES)
            studies, trials = tables.tables["studies"], tables.tables["trials"]
            # What is not another study's: parts whose trial or study is gone would turn up in new ones.
            others = sql.select(studies.c.study_id).where(studies.c.study_name != self.name)
            kept = {"study_id": others, "trial_id": sql.select(trials.c.trial_id).where(trials.c.study_id.in_(others))}
            for table in reversed(tables.sorted_tables):
                column = "study_id" if "study_id" in table.c else "trial_id"
                connection.execute(sql.delete(table).where(table.c[column].not_in(kept[column])))
            connection.execute(sql.delete(_TRIALS).where(_TRIALS.c.study == self.name))
        self._study, self._known = None, {}

    # Who is at work

    def claim(self, name: str) -> bool:
        """Take, or keep, the sole right to something of this study. Atomic: a primary key can be inserted once."""
        full = f"{self.name}/{name}"
        with self._answering():
            with self._engine.connect() as connection:
                now = self._now(connection)
                held = connection.execute(sql.select(_CLAIMS).where(_CLAIMS.c.name == full)).first()
            if held is None:
                try:
                    with self._engine.begin() as connection:
                        first = {"name": full, "owner": self.owner, "token": 1, "expires": now + LEASE}
                        connection.execute(sql.insert(_CLAIMS).values(first))
                except IntegrityError:
                    return False
                self._held[name] = 1
                return True
            if self._is_anothers(held, now):
                return False
            token = held.token if held.owner == self.owner else held.token + 1
            # Only if it is still as we saw it: of two who find it free, one gets it.
            seen = {"name": full, "owner": held.owner, "token": held.token, "expires": held.expires}
            as_seen = sql.and_(*(_CLAIMS.c[column] == value for column, value in seen.items()))
            with self._engine.begin() as connection:
                ours = {"owner": self.owner, "token": token, "expires": now + LEASE}
                if connection.execute(sql.update(_CLAIMS).where(as_seen).values(ours)).rowcount != 1:
                    return False
            self._held[name] = token
            return True

    def _is_anothers(self, held: Any, now: float) -> bool:
        if held.owner in ("", self.owner):
            return False
        # No lease ends later than it can last; such a row is damaged.
        return now < held.expires < now + 2 * LEASE and not _is_gone(held.owner)

    def _now(self, connection: sql.Connection) -> float:
        """One clock for all: the server's, or that of the file system on which the file lies."""
        if self._engine.dialect.name == "postgresql":
            return float(connection.execute(sql.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        path = self._engine.url.database
        if not path or path == ":memory:":
            return time.time()  # of one process alone
        os.utime(path)
        return Path(path).stat().st_mtime

    def release(self, name: str) -> None:
        """The row stays, or the next owner would begin with our token."""
        token = self._held.pop(name, None)
        with self._answering(), self._engine.begin() as connection:
            ours = (_CLAIMS.c.name == f"{self.name}/{name}") & (_CLAIMS.c.owner == self.owner)
            connection.execute(sql.update(_CLAIMS).where(ours & (_CLAIMS.c.token == token)).values(owner=""))

    def renew(self) -> None:
        with self._engine.begin() as connection:
            expires = self._now(connection) + LEASE
            connection.execute(sql.update(_CLAIMS).where(_CLAIMS.c.owner == self.owner).values(expires=expires))

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Keeps this process's claims alive, also while it is busy elsewhere."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(LEASE / 4):
                with contextlib.suppress(SQLAlchemyError, OSError):  # a moment without the database costs no claim yet
                    self.renew()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._held.clear()
            with contextlib.suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(sql.update(_CLAIMS).where(_CLAIMS.c.owner == self.owner).values(owner=""))

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Waits until nobody else does this; what is told meanwhile is told under this claim."""
        while not self.claim(name):
            time.sleep(0.05)
        before, self._acting = self._acting, name
        try:
            yield
        finally:
            self._acting = before
            self.release(name)

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """The loss of the database, or damage to it, is one line."""
        try:
            yield
        except (IntegrityError, UpdateFinishedTrialError):
            raise
        except (SQLAlchemyError, OptunaError, OSError) as error:
            if not _is_loss(error):
                raise self.damaged(_cause(error)) from None
            raise UserError(
                f"the database {_shown(self.url)} was lost: {_cause(error)}; the same command goes on where it stopped"
            ) from None
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
            raise self.damaged(f"{type(error).__name__}: {_cause(error)}") from None


@dataclass(frozen=True)
class _Row:
    key: str
    seal: str


@dataclass(frozen=True)
class _Guard:
    claim: str
    owner: str
    token: int
    row: Mapping[str, Any] | None


class _Fence:
    """Looks at the end of every transaction of Optuna's whether it may end well."""

    def __init__(self) -> None:
        self.guard: _Guard | None = None

    def check(self, session: Session) -> None:
        if (guard := self.guard) is None:
            return
        session.flush()
        # As a write: nobody can take the claim between this look and the end of the transaction.
        ours = (_CLAIMS.c.name == guard.claim) & (_CLAIMS.c.owner == guard.owner) & (_CLAIMS.c.token == guard.token)
        still = session.execute(sql.update(_CLAIMS).where(ours).values(token=guard.token))
        if still.rowcount != 1:  # type: ignore[attr-defined]
            raise Overtaken(f"{guard.claim!r} is another's by now")
        if guard.row is not None:
            of_study = sql.select(sql.func.count()).where(_TRIALS.c.study == guard.row["study"]).scalar_subquery()
            session.execute(sql.insert(_TRIALS).values({**guard.row, "number": of_study}))


_FIELDS = ("model", "key", "space", "varied", "generation", "costs")
_OPTUNA_TABLES = (
    "studies", "study_directions", "study_user_attributes", "study_system_attributes", "trials",
    "trial_user_attributes", "trial_system_attributes", "trial_params", "trial_values", "trial_intermediate_values",
    "trial_heartbeats",
)  # fmt: skip


def settings_of(proposal: Proposal) -> dict[str, Any]:
    """The model of a candidate as the database has it."""
    return proposal.model.model_dump(mode="json", exclude_defaults=True) | {"name": proposal.model.name}


def _seal(key: str, name: str, value: Any) -> str:
    return digest([key, name, value], 16)


def _ending(state: State, values: Any, rungs: Mapping[int, float], reason: str) -> dict[str, Any]:
    """All that counts of a trial that ended, as it comes back from JSON."""
    noted = {str(rung): quality for rung, quality in sorted(rungs.items())}
    return {
        "state": state,
        "values": [float(value) for value in values] if values else None,
        "rungs": noted,
        "reason": reason,
    }


def set_aside(folder: Path) -> None:
    """Put a study's own SQLite file out of the way, for a new one."""
    for part in ("", "-journal", "-wal", "-shm"):  # SQLite would take an old journal for the new file's
        if (path := folder / f"study.db{part}").exists():
            path.replace(folder / f"study.db.damaged{part}")


def default_url(folder: Path) -> str:
    return f"sqlite:///{make_folder(folder) / 'study.db'}"


def _complete(url: str) -> str:
    """``postgresql://`` means our driver, whichever SQLAlchemy would choose."""
    for start in ("postgresql://", "postgres://"):
        if url.startswith(start):
            return f"postgresql+psycopg://{url.removeprefix(start)}"
    return url if "://" in url else f"sqlite:///{url}"


def _opened(url: str) -> optuna.storages.RDBStorage:
    """With all tables. Two processes that make them at the same moment disturb each other, so each tries again."""
    settings = _engine_settings(url)
    for opening in range(_OPENINGS):
        try:
            # Without a pool: of an opening that fails, no connection is left.
            made = optuna.storages.RDBStorage(url, engine_kwargs=settings | {"poolclass": sql.NullPool})
            _TABLES.create_all(made.engine)
            break
        except (SQLAlchemyError, OptunaError) as error:
            met_another = isinstance(error, IntegrityError) or "already exists" in _cause(error)
            if not met_another or opening == _OPENINGS - 1:
                raise
            time.sleep(0.1)
    return optuna.storages.RDBStorage(url, settings, skip_compatibility_check=True, skip_table_creation=True)


def _engine_settings(url: str) -> dict[str, Any]:
    # SQLite lets one process write at a time; the others wait instead of failing.
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": 120}}
    patience = {"connect_timeout": 20} if url.startswith("postgresql") else {}
    return {"pool_pre_ping": True, "connect_args": patience}


def _cause(error: BaseException) -> str:
    """In one line, and of SQLAlchemy's and Optuna's errors the one behind them."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:200]


def _shown(url: str) -> str:
    """Without the password."""
    try:
        return sql.make_url(url).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return repr(re.sub(r"(//[^:/@]*):.*@", r"\1:***@", url))


def _is_gone(owner: str) -> bool:
    match = re.fullmatch(r"(\S+) (\d+) \S+", owner)
    if match is None:  # nobody is called that
        return True
    if match[1] != socket.gethostname():
        return False
    try:
        os.kill(int(match[2]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _is_loss(error: BaseException) -> bool:
    """Rather than damage: nobody answers, or the disk does not. Optuna wraps what SQLAlchemy says."""
    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    is_silence = isinstance(error, OSError | OperationalError | InterfaceError)
    return is_silence and not re.search("no such (table|column)", str(error))


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The fields in which two configs differ, by their dotted names."""
    first, second = flatten(ours), flatten(theirs)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
