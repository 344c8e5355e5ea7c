"""A real PostgreSQL server and a real Ray cluster of two nodes, on the loopback interface alone."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.registry import catalogue

NODES = """
import json, os, sys
from ray.cluster_utils import Cluster

quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_timeout_ms": 1000,
         "health_check_failure_threshold": 4}
here = {"node_ip_address": "127.0.0.1", "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args={**here, "num_cpus": 1, "_system_config": quick})
try:
    nodes = [cluster.add_node(**here, num_cpus=1)]
    print(json.dumps(cluster.address), flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        else:
            nodes.append(cluster.add_node(**here, num_cpus=1))
        print(json.dumps(len(nodes)), flush=True)
finally:
    cluster.shutdown()
"""


def _programs() -> Path | None:
    """Debian keeps PostgreSQL's server programs out of the way."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _as_nobody_special() -> tuple[list[str], str]:
    """PostgreSQL refuses to be root."""
    if os.getuid() != 0:
        return [], getpass.getuser()
    name = next(name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()})
    entry = pwd.getpwnam(name)
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"], name


class Server:
    """A PostgreSQL server of one's own."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs, self.port = folder, programs, free_port()
        self.become, self.user = _as_nobody_special()
        if self.become:
            shutil.chown(folder, self.user)
        self.process: subprocess.Popen[bytes] | None = None
        quick = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", f"--username={self.user}"]
        self._run("initdb", *quick, "-D", str(folder / "data"))
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self.become, str(self.programs / program), *arguments]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}", "fsync=off"]
        given = [part for setting in settings for part in ("-c", setting)]
        command = [*self.become, str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, *given], cwd=self.folder, stdout=log, stderr=log)
        until = time.monotonic() + 60
        while subprocess.run([self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until, "PostgreSQL does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """At once: its clients lose their connections."""
        if self.process is not None and self.process.poll() is None:
            self._run("pg_ctl", "stop", "-m", "fast", "-D", str(self.folder / "data"))
            self.process.wait()

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, name)
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        pytest.skip("there is no PostgreSQL on this machine: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="isthmus-pg-"))  # pytest's own folders are closed to other users
    try:
        server = Server(folder, programs)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'study.db'}"
    server: Server = request.getfixturevalue("server")
    return server.database()


def started_in(folder: str) -> list[int]:
    """The processes of the Ray cluster that has this folder."""
    mark, found = f"RAY_TMPDIR={folder}".encode(), []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ends at this moment
            if mark in environment.read_bytes():
                found.append(int(environment.parent.name))
    return [process for process in found if process != os.getpid()]


class Nodes:
    """A Ray cluster of two nodes of one CPU each, in processes of its own: Ray is noisy company."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.environment = {
            "RAY_TMPDIR": str(folder),  # short, because sockets lie in it
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # stay on the loopback interface, as Ray does there
        }
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", NODES],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=os.environ | self.environment | {"PYTHONPATH": str(site)},
            )  # fmt: skip
        self.address = str(self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"Ray did not start: {self.process.wait()}"
        return json.loads(line)

    def tell(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self._answer()

    def stop(self) -> None:
        self.process.communicate()  # the end of its input is the end of the cluster
        until = time.monotonic() + 30
        # A worker takes a moment to see that its node is gone.
        while left := started_in(self.environment["RAY_TMPDIR"]):
            if time.monotonic() > until:
                for process in left:
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(site: Path) -> Iterator[Nodes]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'isthmus[ray]'")
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        nodes = Nodes(folder, site)
        try:
            yield nodes
        finally:
            nodes.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nodes(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """The cluster, for drivers that this test starts."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return cluster


TROUBLE = '''
import os, signal
import torch
from torch import nn
from isthmus.core.protocols import ModelConfig


class Config(ModelConfig):
    trouble: str
    d_in: int | None = None

    def complete(self, signature, seed):
        return self.model_copy(update={"d_in": signature.input_shape[-1]})


class Troubled(nn.Module):
    """A linear map that gets into trouble in the middle of its training, and not while it is being counted."""

    Config = Config

    def __init__(self, config):
        super().__init__()
        self.config, self.input_shape = config, (1, 8, 8)
        self.map = nn.Linear(config.d_in, config.d_in)
        self.steps = 0

    def forward(self, x):
        self.steps += self.training and x.device.type != "meta"
        if self.steps == 5:
            self.get_into(self.config.trouble)
        return self.map(x)

    def get_into(self, trouble):
        if trouble == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if trouble == "memory":
            torch.empty(2**50)
        if trouble == "error":
            raise ZeroDivisionError("in the fifth step")

    def trajectory(self, x):
        yield "output", self.map(x)
'''


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a package with such a model is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "isthmus_troubled-1.0.dist-info").mkdir(parents=True)
    (site / "isthmus_troubled.py").write_text(TROUBLE)
    (site / "isthmus_troubled-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: isthmus-troubled\nVersion: 1.0\n"
    )
    (site / "isthmus_troubled-1.0.dist-info" / "entry_points.txt").write_text(
        "[isthmus.models]\ntroubled = isthmus_troubled:Troubled\n"
    )
    return site


@pytest.fixture
def troubled(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That package, for this process and those that it starts."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    catalogue.cache_clear()
    yield
    catalogue.cache_clear()
    sys.modules.pop("isthmus_troubled", None)
