"""The database of a study: SQLite by default, PostgreSQL by URL, through Optuna's storage and its SQLAlchemy engine.

Whatever goes wrong with it is one line: it cannot be used, it was lost, or it is damaged.
"""

from __future__ import annotations

import contextlib
import re
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sql
from optuna.exceptions import OptunaError, StorageInternalError, UpdateFinishedTrialError
from sqlalchemy.exc import ArgumentError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

from isthmus.core.errors import UserError
from isthmus.core.files import make_folder

TABLES = sql.MetaData()
"""Our own tables, beside Optuna's."""
_ATTEMPTS = 20
_ACCEPTED = "sqlite:///FILE and postgresql://USER:PASSWORD@HOST:PORT/NAME are accepted"


class Damaged(UserError):
    """The database answers, but is damaged or of another version."""


class Database:
    """An open database."""

    def __init__(self, url: str) -> None:
        self.url = _complete(url)
        try:
            self._storage = _open(self.url)
        except ImportError as error:
            install = "pip install 'isthmus[postgresql]'" if self.url.startswith("postgresql+psycopg:") else _ACCEPTED
            raise UserError(f"{_show(url)} needs a driver that is not installed: {install} ({error})") from None
        except (SQLAlchemyError, OptunaError, LookupError, ValueError, OSError, RuntimeError) as error:
            known = f"; {_ACCEPTED}" if isinstance(error, ArgumentError | ValueError) else ""
            kind = UserError if _is_loss(error) else Damaged
            raise kind(f"the database {_show(url)} cannot be used: {_cause(error)}{known}") from None
        self._engine = self._storage.engine
        weakref.finalize(self, self._engine.dispose)  # closes the server's connections at once

    def damage(self, what: str) -> Damaged:
        return Damaged(f"the database {_show(self.url)} is damaged: {what}; `isthmus study … --rebuild` restores it")

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn the loss of the database, or damage to it, into one line."""
        try:
            yield
        except (IntegrityError, UpdateFinishedTrialError):
            raise
        except (SQLAlchemyError, OptunaError, OSError) as error:
            if not _is_loss(error):
                raise self.damage(_cause(error)) from None
            raise UserError(f"the database {_show(self.url)} was lost: {_cause(error)}; repeat the command") from None
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
            raise self.damage(f"{type(error).__name__}: {_cause(error)}") from None


def default_url(folder: Path) -> str:
    return f"sqlite:///{make_folder(folder) / 'study.db'}"


def set_aside(folder: Path) -> None:
    """Rename a study's own SQLite file, so that a new one can be made."""
    for part in ("", "-journal", "-wal", "-shm"):  # SQLite would take an old journal for the new file's
        if (path := folder / f"study.db{part}").exists():
            path.replace(folder / f"study.db.damaged{part}")


def _complete(url: str) -> str:
    """``postgresql://`` means our driver, whichever SQLAlchemy would choose."""
    return re.sub("^postgres(ql)?://", "postgresql+psycopg://", url if "://" in url else f"sqlite:///{url}")


def _open(url: str) -> optuna.storages.RDBStorage:
    """Open the database and create its tables. Two processes that create them at once disturb each other: try again."""
    settings: dict[str, Any] = {"pool_pre_ping": True, "connect_args": {}}
    if url.startswith("sqlite"):  # one process writes at a time, and the others wait instead of failing
        settings = {"connect_args": {"timeout": 120}}
    elif url.startswith("postgresql"):
        settings["connect_args"] = {"connect_timeout": 20}
    for attempt in range(_ATTEMPTS):
        try:
            # Without a pool, so that an attempt that fails leaves no connection.
            made = optuna.storages.RDBStorage(url, engine_kwargs=settings | {"poolclass": sql.NullPool})
            TABLES.create_all(made.engine)
            break
        except (SQLAlchemyError, OptunaError) as error:
            met_another = isinstance(error, IntegrityError) or "already exists" in _cause(error)
            if not met_another or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.1)
    return optuna.storages.RDBStorage(url, settings, skip_compatibility_check=True, skip_table_creation=True)


def _cause(error: BaseException) -> str:
    """The error behind SQLAlchemy's and Optuna's, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())[:200]


def _show(url: str) -> str:
    """The URL without its password."""
    try:
        return sql.make_url(url).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return repr(re.sub(r"(//[^:/@]*):.*@", r"\1:***@", url))


def _is_loss(error: BaseException) -> bool:
    """Whether the server or the disk does not answer, rather than answering with damage. Optuna wraps the error."""
    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    is_silence = isinstance(error, OSError | OperationalError | InterfaceError)
    return is_silence and not re.search("no such (table|column)", str(error))
