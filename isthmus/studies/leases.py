"""Which process works on what: leases in the database of a study.

A lease is a row that one process can insert, with an expiry that its owner renews. It expires by the database's clock,
so that no process's clock matters. Every write names a lease, and its transaction commits only while the writer still
holds that lease: a process that was suspended beyond its expiry cannot write any more (``LeaseLost``).
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from isthmus.studies.database import TABLES, Database

LEASES = sql.Table(
    "isthmus_leases",
    TABLES,
    sql.Column("name", sql.String(200), primary_key=True),
    sql.Column("owner", sql.String(200), nullable=False),  # empty: nobody
    sql.Column("token", sql.Integer, nullable=False),  # grows with every new owner
    sql.Column("expires", sql.Float(53), nullable=False),
)
LEASE = 60.0
"""Seconds until a lease expires that is not renewed. A dead process of this machine loses its leases at once."""


class LeaseLost(Exception):
    """Another process has taken the lease: read the database again before deciding anything."""


class Leases(Database):
    """The leases of one study."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url)
        self.name = name
        self.owner = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex[:8]}"
        self._tokens: dict[str, int] = {}  # of the leases that we hold
        self._acting = ""
        self._fence = _Fence()
        sql.event.listen(self._storage.scoped_session, "before_commit", self._fence.check)

    def claim(self, name: str) -> bool:
        """Take, or keep, a lease. Atomic, because a primary key can be inserted once."""
        full = f"{self.name}/{name}"
        with self._explain_errors():
            with self._engine.connect() as connection:
                now = self._now(connection)
                seen = connection.execute(sql.select(LEASES).where(LEASES.c.name == full)).mappings().first()
            token = 1 if seen is None else seen["token"] + (seen["owner"] != self.owner)
            ours = {"name": full, "owner": self.owner, "token": token, "expires": now + LEASE}
            if seen is not None and self._is_held_by_another(seen, now):
                return False
            try:
                with self._engine.begin() as connection:
                    if seen is None:
                        connection.execute(sql.insert(LEASES).values(ours))
                    # Only if it is unchanged: of two who find it free, one gets it.
                    elif connection.execute(sql.update(LEASES).where(_is(seen)).values(ours)).rowcount != 1:
                        return False
            except IntegrityError:
                return False
            self._tokens[name] = token
            return True

    def _is_held_by_another(self, seen: Mapping[Any, Any], now: float) -> bool:
        if seen["owner"] in ("", self.owner):
            return False
        # A lease that expires later than it can last is a damaged row.
        return bool(now < seen["expires"] < now + 2 * LEASE) and not _has_died(seen["owner"])

    def _now(self, connection: sql.Connection) -> float:
        """The server's clock, or that of the file system which holds the file."""
        if self._engine.dialect.name == "postgresql":
            return float(connection.execute(sql.text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        path = self._engine.url.database
        if not path or path == ":memory:":
            return time.time()  # used by one process only
        os.utime(path)
        return Path(path).stat().st_mtime

    def release(self, name: str) -> None:
        """Give a lease back. Its row stays, so that the next owner gets a new token."""
        ours = {"name": f"{self.name}/{name}", "owner": self.owner, "token": self._tokens.pop(name, None)}
        with self._explain_errors(), self._engine.begin() as connection:
            connection.execute(sql.update(LEASES).where(_is(ours)).values(owner=""))

    def renew(self) -> None:
        with self._engine.begin() as connection:
            expires = self._now(connection) + LEASE
            connection.execute(sql.update(LEASES).where(LEASES.c.owner == self.owner).values(expires=expires))

    @contextlib.contextmanager
    def renew_leases(self) -> Iterator[None]:
        """Renew this process's leases in the background, and give them back at the end."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(LEASE / 4):
                with contextlib.suppress(SQLAlchemyError, OSError):  # a short loss of the database costs no lease
                    self.renew()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._tokens.clear()
            with contextlib.suppress(SQLAlchemyError), self._engine.begin() as connection:
                connection.execute(sql.update(LEASES).where(LEASES.c.owner == self.owner).values(owner=""))

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait for a lease, and write under it until the block ends."""
        while not self.claim(name):
            time.sleep(0.05)
        before, self._acting = self._acting, name
        try:
            yield
        finally:
            self._acting = before
            self.release(name)

    def _write_under(self, lease: str, write: Callable[..., Any], *values: Any, also: Any = None) -> None:
        """Call a function of Optuna's whose transaction commits, together with ``also``, only if the lease is ours."""
        if lease not in self._tokens:
            raise LeaseLost(f"{lease!r} is not claimed")
        self._fence.lease = {"name": f"{self.name}/{lease}", "owner": self.owner, "token": self._tokens[lease]}
        self._fence.also = also
        try:
            write(*values)
        finally:
            self._fence.lease = None

    def _is_unused(self, connection: sql.Connection) -> bool:
        """Whether no other process holds a lease of this study."""
        rows = connection.execute(sql.select(LEASES).where(LEASES.c.name.startswith(f"{self.name}/", autoescape=True)))
        now = self._now(connection)
        return not any(self._is_held_by_another(seen, now) for seen in rows.mappings().all())


class _Fence:
    """Checks a lease before each of Optuna's transactions commits. It does not refer to the storage, which is then
    freed, and its connections closed, as soon as nobody uses it."""

    def __init__(self) -> None:
        self.lease: Mapping[str, Any] | None = None
        self.also: Any = None

    def check(self, session: Session) -> None:
        if self.lease is None:
            return
        session.flush()
        # An update, so that nobody can take the lease between this check and the commit.
        kept = session.execute(sql.update(LEASES).where(_is(self.lease)).values(token=self.lease["token"]))
        if kept.rowcount != 1:  # type: ignore[attr-defined]
            raise LeaseLost(f"another process has taken {self.lease['name']!r}")
        if self.also is not None:
            session.execute(self.also)


def _is(row: Mapping[Any, Any]) -> Any:
    return sql.and_(*(LEASES.c[column] == value for column, value in row.items()))


def _has_died(owner: str) -> bool:
    """Whether an owner is a process of this machine that has ended, or nobody at all."""
    match = re.fullmatch(r"(\S+) (\d+) \S+", owner)
    if match is None:
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
