"""A real Ray cluster of two nodes finds what one process finds, also when one of the nodes is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isthmus.core.errors import UserError
from isthmus.core.files import home, write_json
from isthmus.core.record import run_folders
from isthmus.studies.cluster import RayCluster
from tests.studies.conftest import Nodes, free_port, started_in
from tests.studies.drivers import BASE, SAMPLED, SPACES, Driver, eventually, opened, result, settings, undisturbed

LONGER = settings(base=BASE | {"train": {"epochs": 50}}, spaces=SPACES[:1], seeds=[0, 1, 2])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def grown(folders: set[Path], sizes: dict[Path, int]) -> set[Path]:
    """The runs that have written into their logs since the last look."""
    now = {folder: (folder / "metrics.jsonl").stat().st_size for folder in folders}
    found = {folder for folder, size in now.items() if size > sizes.get(folder, size)}
    sizes.update(now)
    return found


def two_are_at_work(driver: subprocess.Popen[str]) -> bool:
    """Waits until both nodes are in the middle of a run."""
    sizes: dict[Path, int] = {}

    def two() -> bool:
        assert driver.poll() is None
        time.sleep(0.2)
        return len(grown({path.parent for path in (home() / "runs").glob("*/metrics.jsonl")}, sizes)) == 2

    return bool(eventually(two, 120))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_a_cluster_finds_the_same(
    sampler: str, nodes: Nodes, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(**SAMPLED[sampler])
    expected = undisturbed(given, tmp_path / "undisturbed", monkeypatch)
    with Driver(given, url, cluster="auto" if sampler == "random" else nodes.address) as driver:
        lines = driver.lines()
    assert lines[0] == ["ready", 2, ""], "two nodes of one CPU each"
    assert {how for _, how, _ in lines[1:]} == {"done"}
    assert result(opened(given, url)) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_and_a_driver_that_are_killed_change_nothing(
    nodes: Nodes, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(LONGER, tmp_path / "undisturbed", monkeypatch)
    with Driver(LONGER, url, cluster=nodes.address) as driver:
        assert two_are_at_work(driver.process)
        driver.kill()
    write_json(tmp_path / "small.json", LONGER)
    command = ["study", str(tmp_path / "small.json"), "--cluster", nodes.address, "--storage", url, "--json"]
    with _isthmus(*command) as process:
        assert two_are_at_work(process)
        nodes.tell("kill")
        try:
            out, said = process.communicate()
        finally:
            nodes.tell("add")
    assert process.returncode == 0, said
    assert "with 2 workers of 1 thread" in said
    assert len(json.loads(out)["trials"]) == 4, "and Ray's own news are not among the results"
    study = opened(LONGER, url)
    assert study.is_complete
    assert result(study) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_saves_every_run_on_the_cluster(
    nodes: Nodes, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(LONGER, tmp_path / "undisturbed", monkeypatch)
    with Driver(LONGER, url, cluster=nodes.address) as driver:
        assert two_are_at_work(driver.process)
        driver.process.send_signal(signal.SIGINT)
        out, _ = driver.process.communicate()
        assert driver.process.returncode == -signal.SIGINT  # what Python makes of a KeyboardInterrupt
    assert '"stopped"' in out
    unfinished = {folder for folder in run_folders() if not (folder / "record.json").exists()}
    assert unfinished
    assert all((folder / "state.json").exists() for folder in unfinished)
    with Driver(LONGER, url, cluster=nodes.address) as driver:
        driver.lines()
    assert result(opened(LONGER, url)) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_whose_process_dies_on_every_node_fails_alone(nodes: Nodes, url: str, troubled: None) -> None:
    models = [{"name": "troubled", "trouble": trouble} for trouble in ("crash", "memory", "none")]
    given = settings(spaces=SPACES[:1], candidates=models)
    with Driver(given, url, cluster=nodes.address) as driver:
        lines = driver.lines()
    outcomes = result(opened(given, url))["trials"]
    assert [trial["state"] for trial in outcomes] == ["failed", "failed", "finished"] + ["finished"] * 4
    assert outcomes[0]["reason"].startswith("its process or its node died: WorkerCrashedError: ")
    assert outcomes[1]["reason"].startswith("out of memory: ")
    assert sorted(how for _, how, _ in lines[1:]) == ["crashed"] + ["done"] * 5 + ["failed"]


@pytest.mark.slow
def test_a_job_that_fits_no_node_is_told_after_a_while(nodes: Nodes, tmp_path: Path) -> None:
    script = """
import sys
from isthmus.training.prepare import Options
from isthmus.studies.cluster import RayCluster
from isthmus.studies.executors import Job
with RayCluster(sys.argv[1], threads=64, patience=3.0) as cluster:
    assert cluster.slots == 1
    cluster.start([Job("0" * 16, "{}")], Options())
    while True:
        assert not cluster.events(0.2)
"""
    done = _python(script, nodes.address)
    assert done.returncode == 1
    assert "no node of the Ray cluster has had 64 CPUs for 3 s (the largest has 1 CPUs)" in done.stderr


@pytest.mark.slow
def test_nodes_that_do_not_share_the_home_are_found_out(nodes: Nodes, tmp_path: Path) -> None:
    """Instead of a study whose runs all seem to have no result."""
    script = """
import os, sys, json
from isthmus.core.config import study_config
from isthmus.training.prepare import Options
from isthmus.studies import cluster
from isthmus.studies.plan import Plan
from isthmus.studies.executors import Job
cluster._SEEN_WITHIN = 1.0
plan = Plan.of(study_config(json.loads(sys.argv[2])), Options())
run = plan.run(plan.candidates[0].model, 1e-3, 0)
with cluster.RayCluster(sys.argv[1]) as executor:
    os.environ["ISTHMUS_HOME"] = sys.argv[3]
    executor.start([Job(run.id, run.config.model_dump_json())], Options())
    while not (events := executor.events(0.2)):
        pass
    print(events[0].how, events[0].reason)
"""
    done = _python(script, nodes.address, json.dumps(settings()), str(tmp_path / "elsewhere"))
    assert done.stdout.startswith("refused ")
    assert "record.json is not here; all nodes must share ISTHMUS_HOME" in done.stdout


def _listening(processes: list[int]) -> set[str]:
    """The local addresses, as hexadecimal numbers, on which these processes wait for connections."""
    sockets = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(descriptor.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, and the same in IPv6


@pytest.mark.slow
def test_the_documented_private_cluster_listens_on_the_loopback_interface_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of docs/clusters.md, and a study on that cluster; see there what listens otherwise."""
    pytest.importorskip("ray")
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
    (variable,) = re.findall(r"^export (RAY_ENABLE\w+)=0$", page, flags=re.MULTILINE)
    (start,) = re.findall(r"^ray (start --head --node-ip-address=127\.0\.0\.1)$", page, flags=re.MULTILINE)
    write_json(tmp_path / "small.json", settings(base=BASE | {"train": {"epochs": 5000}}, spaces=SPACES[:1]))
    monkeypatch.delenv(variable, raising=False)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # short, because sockets lie in it
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        port = str(free_port())
        ray = [str(Path(sys.executable).with_name("ray")), *start.split(), f"--port={port}", "--num-cpus=1"]
        command = [*ray, f"--ray-client-server-port={free_port()}", "--block"]
        with (tmp_path / "log").open("wb") as log:
            head = subprocess.Popen(command, env=os.environ | {variable: "0"}, stdout=log, stderr=log)
        try:
            eventually(lambda: head.poll() is None and _is_answering(int(port)), 120)
            arguments = ("study", str(tmp_path / "small.json"), "--cluster", f"127.0.0.1:{port}")
            with _isthmus(*arguments) as process:  # the variable is not set here: a loopback address says enough
                eventually(lambda: process.poll() is not None or [*(home() / "runs").glob("*/metrics.jsonl")], 120)
                assert process.poll() is None, process.communicate()[1]
                ours = started_in(folder)
                assert {head.pid, process.pid} <= {*ours}
                listening = _listening(ours)
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate()
            assert process.returncode == 143, said
        finally:
            head.terminate()
            head.wait()
            for left in started_in(folder):
                os.kill(left, signal.SIGKILL)
            eventually(lambda: not started_in(folder))
    assert listening
    assert listening <= LOOPBACK
    (unfinished,) = [folder for folder in run_folders() if not (folder / "record.json").exists()]
    assert (unfinished / "state.json").exists(), "SIGTERM saves on a cluster too"


def _is_answering(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _isthmus(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "isthmus", *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=os.environ.copy())
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ.copy(), check=False)


@pytest.mark.slow
def test_what_a_node_lacks_is_no_failure_of_a_run(
    nodes: Nodes, url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here a data file. The study stops with one line, and none of its runs has failed."""
    rows = tmp_path / "rows.npz"
    inputs = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
    np.savez(rows, x=inputs, y=inputs.sum(1))
    source = {"name": "arrays", "path": str(rows), "inputs": ["x"], "targets": ["y"]}
    base = {"source": source, "task": {"name": "regression"}, "threads": 1}
    given = settings(base=base, spaces=[], candidates=[{"name": "hourglass_mlp", "d_z": 6, "d_h": 2, "depth": 1}])
    with Driver(given, url, cluster=nodes.address, waits=True) as driver:
        driver.line()
        content = rows.read_bytes()
        rows.unlink()
        driver.go()
        assert driver.process.wait() == 1
    said = rf"UserError: run [0-9a-f]+: {re.escape(socket.gethostname())}: .*{re.escape(str(rows))}"
    assert re.search(said, capfd.readouterr().err)
    rows.write_bytes(content)
    assert [(trial["state"], trial["failures"]) for trial in opened(given, url).outcomes()] == [("open", {})]


@pytest.mark.slow
def test_without_ray_everything_else_works() -> None:
    script = """
import sys
sys.modules["ray"] = None  # as if it were not installed
import isthmus.cli.complete
from isthmus.core.errors import UserError
from isthmus.studies.cluster import RayCluster
try:
    RayCluster("auto")
except UserError as error:
    print(error)
"""
    assert _python(script).stdout.startswith("--cluster needs Ray: pip install 'isthmus[ray]'")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("given", ["127.0.0.1:1", "ray://127.0.0.1:1", "auto"])
def test_a_cluster_that_is_not_there_is_one_line(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    said = rf"the Ray cluster '{given}' cannot be used: nothing answers at 127.0.0.1:1 .*`ray start --head` starts one"
    with pytest.raises(UserError, match=said) as found:
        RayCluster(given)
    assert "\n" not in str(found.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("given", ["nowhere", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:99999", "local", ""])
def test_what_is_no_address_is_one_line(given: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=r"is neither auto nor an address such as 10\.0\.0\.1:6379"):
        RayCluster(given)


@pytest.mark.slow
def test_a_stranger_at_the_address_is_one_line() -> None:
    """Something listens, and does not speak Ray's language."""
    pytest.importorskip("ray")
    script = """
import sys
from isthmus.core.errors import UserError
from isthmus.studies.cluster import RayCluster
try:
    RayCluster(sys.argv[1])
except UserError as error:
    print(error)
"""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        done: Any = _python(script, address)
    assert done.stdout.startswith(f"the Ray cluster '{address}' cannot be used: ")
    assert done.stdout.count("\n") == 1
