"""The memory of a study that several processes share: its trials, in Optuna's tables, and who is at work on what.

SQLite by default, PostgreSQL by URL. The run records are the truth, and this is their index: a study whose database
was lost asks for the same candidates again and finds their records. ``optuna-dashboard`` shows it as it is.
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
from optuna.exceptions import OptunaError, StorageInternalError, UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from isthmus.errors import UserError
from isthmus.files import make_folder
from isthmus.record import flat
from isthmus.studies.judging import Proposal

State = Literal["open", "finished", "pruned", "failed"]
_STATES: dict[TrialState, State] = {
    TrialState.RUNNING: "open", TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
}  # fmt: skip
_CLAIMS = sql.Table(
    "isthmus_claims",
    sql.MetaData(),
    sql.Column("name", sql.String(200), primary_key=True),
    sql.Column("owner", sql.String(200), nullable=False),
    sql.Column("expires", sql.Float, nullable=False),
)
LEASE = 60.0
"""Seconds after which a claim that is not renewed is anybody's. A dead process of this machine loses it at once."""
_OPENINGS = 20
_FAILURE = "failure "
_ACCEPTED = "sqlite:///FILE and postgresql://USER:PASSWORD@HOST:PORT/NAME are accepted"


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
    """One study in a database."""

    def __init__(self, url: str, name: str, maximise: bool) -> None:
        self.url, self.name = _complete(url), name
        self.owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:8]}"
        try:
            self._storage = _opened(self.url)
            self._engine = self._storage.engine
            weakref.finalize(self, self._engine.dispose)  # or the server would learn of our end by accident
            self._study = optuna.create_study(
                storage=self._storage, study_name=name, load_if_exists=True,
                directions=["maximize" if maximise else "minimize", "minimize"],
            )  # fmt: skip
        except ImportError as error:
            install = "pip install 'isthmus[postgresql]'" if self.url.startswith("postgresql+psycopg:") else _ACCEPTED
            raise UserError(f"{_shown(url)} needs a driver that is not installed: {install} ({error})") from None
        except (SQLAlchemyError, OptunaError, ValueError, OSError, RuntimeError) as error:
            known = f"; {_ACCEPTED}" if isinstance(error, ArgumentError | ValueError) else ""
            raise UserError(f"the database {_shown(url)} cannot be used: {_cause(error)}{known}") from None

    def begun(self) -> dict[str, Any] | None:
        """The config that the study was begun with, if it was."""
        found = self._study.user_attrs.get("config")
        return None if found is None else dict(json.loads(found))

    def agree(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config that the study was begun with; ours, if we begin it. Another one's fields are named."""
        with self.alone("begin"):
            if self.begun() is None:
                self._study.set_user_attr("config", json.dumps(config, sort_keys=True))
        return self.begun() or {}

    def entries(self) -> list[Entry]:
        return [_entry(trial) for trial in self._study.get_trials(deepcopy=False)]

    def add(self, proposal: Proposal, generation: int, memory: Mapping[str, Any], costs: Mapping[str, float]) -> None:
        """A new trial. Its model stands in the user attributes, where Optuna's dashboard shows it."""
        model = proposal.model.model_dump(mode="json", exclude_defaults=True) | {"name": proposal.model.name}
        attributes = {
            "model": model, "key": proposal.key, "space": proposal.space, "varied": dict(proposal.varied),
            "generation": generation, "costs": dict(costs),
        }  # fmt: skip
        trial = create_trial(state=TrialState.RUNNING, user_attrs=attributes, system_attrs=dict(memory))
        self._study.add_trial(trial)

    def note_rung(self, number: int, rung: int, quality: float) -> None:
        with contextlib.suppress(UpdateFinishedTrialError):
            self._storage.set_trial_intermediate_value(self._id(number), rung, quality)

    def note_failure(self, number: int, run: str, reason: str) -> None:
        """Each under a name of its own: two processes that note one each do not overwrite each other's."""
        self._note(number, f"{_FAILURE}{run}", reason)

    def _note(self, number: int, name: str, value: Any) -> None:
        with contextlib.suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(self._id(number), name, value)

    def end(self, number: int, state: State, values: tuple[float, float] | None = None, reason: str = "") -> None:
        """How a trial ended. Whoever says so first is right; the others found the same."""
        if reason:
            self._note(number, "reason", reason)
        ended = next(theirs for theirs, ours in _STATES.items() if ours == state)
        with contextlib.suppress(UpdateFinishedTrialError):
            self._storage.set_trial_state_values(self._id(number), ended, values)

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)

    def claim(self, name: str) -> bool:
        """Take, or keep, the sole right to something of this study. Atomic: a primary key can be inserted once."""
        name, now = f"{self.name}/{name}", time.time()
        with self._engine.connect() as connection:
            held = connection.execute(sql.select(_CLAIMS).where(_CLAIMS.c.name == name)).first()
        if held is None:
            try:
                with self._engine.begin() as connection:
                    connection.execute(sql.insert(_CLAIMS).values(name=name, owner=self.owner, expires=now + LEASE))
            except IntegrityError:
                return False
            return True
        if held.owner != self.owner and held.expires > now and not _is_gone(held.owner):
            return False
        # Only if it is still as we saw it: of two who find it free, one gets it.
        unchanged = (_CLAIMS.c.name == name) & (_CLAIMS.c.owner == held.owner) & (_CLAIMS.c.expires == held.expires)
        with self._engine.begin() as connection:
            ours = sql.update(_CLAIMS).where(unchanged).values(owner=self.owner, expires=now + LEASE)
            return connection.execute(ours).rowcount == 1

    def release(self, name: str) -> None:
        with self._engine.begin() as connection:
            mine = (_CLAIMS.c.name == f"{self.name}/{name}") & (_CLAIMS.c.owner == self.owner)
            connection.execute(sql.delete(_CLAIMS).where(mine))

    def renew(self) -> None:
        with self._engine.begin() as connection:
            mine = _CLAIMS.c.owner == self.owner
            connection.execute(sql.update(_CLAIMS).where(mine).values(expires=time.time() + LEASE))

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Keeps this process's claims alive, also while it is busy elsewhere. The loss of the database is one line."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(LEASE / 4):
                with contextlib.suppress(SQLAlchemyError):  # a moment without the database costs no claim yet
                    self.renew()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        except (SQLAlchemyError, StorageInternalError) as error:
            raise UserError(
                f"the database {_shown(self.url)} was lost: {_cause(error)}; the same command goes on where it stopped"
            ) from None
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(sql.delete(_CLAIMS).where(_CLAIMS.c.owner == self.owner))

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Waits until nobody else does this."""
        while not self.claim(name):
            time.sleep(0.05)
        try:
            yield
        finally:
            self.release(name)


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
            _CLAIMS.metadata.create_all(made.engine)
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
    host, process, _ = owner.split(" ")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _entry(trial: FrozenTrial) -> Entry:
    given = trial.user_attrs
    return Entry(
        number=trial.number,
        state=_STATES[trial.state],
        generation=given["generation"],
        key=given["key"],
        space=given["space"],
        model=given["model"],
        varied=given["varied"],
        memory=trial.system_attrs,
        costs=given["costs"],
        quality=trial.values[0] if trial.values else None,
        rungs=trial.intermediate_values,
        failures={name.removeprefix(_FAILURE): why for name, why in given.items() if name.startswith(_FAILURE)},
        reason=given.get("reason", ""),
    )


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The fields in which two configs differ, by their dotted names."""
    first, second = flat(ours), flat(theirs)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
