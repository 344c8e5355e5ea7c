"""Processes that the studio starts: they outlive it, and nothing else is ever signalled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from isthmus.core.errors import UserError
from isthmus.core.files import home, write_json
from isthmus.studio.jobs import JOB, Jobs
from isthmus.studio.server import create_app
from tests.command_line import tiny

HERE = "http://127.0.0.1:8642"


def _wait(jobs: Jobs, name: str, seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while jobs.is_running(jobs.find(name)):
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_a_command_runs_by_itself_and_its_result_is_read() -> None:
    jobs = Jobs(home())
    job = jobs.start(["models"], "the models", problem="abc")
    assert job.command == "isthmus models"
    assert jobs.is_running(job)
    _wait(jobs, job.id)
    assert jobs.code(job) == 0
    assert jobs.result(job)
    with pytest.raises(UserError, match="not running"):
        jobs.stop(job.id)
    again = jobs.resume(job.id)
    assert (again.id, again.words) == (job.id, job.words)
    _wait(jobs, job.id)
    assert Jobs(home()).newest() == [again]  # another server knows it too


def test_only_a_process_of_ours_is_stopped() -> None:
    jobs = Jobs(home())
    job = jobs.start(["models"], "the models")
    _wait(jobs, job.id)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        # A later process has got the id of the first.
        write_json(home() / "studio" / "jobs" / job.id / JOB, asdict(replace(job, pid=other.pid)))
        for known in (jobs, Jobs(home())):
            assert not known.is_running(known.find(job.id))
            with pytest.raises(UserError, match="not running"):
                known.stop(job.id)
        assert other.poll() is None
        other.kill()


def test_a_paused_job_is_resumed_with_the_time_that_was_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "command"  # it notes its words, and needs a second request to end
    command.write_text("#!/bin/sh\ntrap : INT\necho $* >> words\nwhile :; do sleep 1 & wait; done\n")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(command))
    jobs = Jobs(home())
    job = jobs.start(["find", "bikes", "--within=100s"], "search", seconds=100.0)
    words = home() / "studio" / "jobs" / job.id / "words"
    while not words.exists():
        time.sleep(0.01)
    jobs.stop(job.id)
    time.sleep(0.2)
    assert jobs.is_running(jobs.find(job.id))  # it is saving its state
    jobs.stop(job.id)
    _wait(jobs, job.id)
    paused = jobs.find(job.id)
    assert paused.asked_to_stop
    assert paused.left == pytest.approx(100, abs=20)
    write_json(home() / "studio" / "jobs" / job.id / JOB, asdict(replace(paused, left=42.0)))
    resumed = jobs.resume(job.id)
    assert resumed.ends == pytest.approx(time.time() + 42, abs=10)
    assert resumed.command == "isthmus find bikes --within=100s"
    while len(words.read_text().splitlines()) < 2:
        time.sleep(0.01)
    assert "--within=42s" in words.read_text()
    for _ in range(2):
        jobs.stop(job.id)
    _wait(jobs, job.id)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"id": 1}', '{"words": 3}'])
def test_damaged_jobs_are_left_out(content: str) -> None:
    folder = home() / "studio" / "jobs" / "abc"
    folder.mkdir(parents=True)
    (folder / JOB).write_text(content)
    assert Jobs(home()).newest() == []


@pytest.mark.slow
def test_a_search_survives_its_server_and_is_stopped_by_the_next(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{x},{x % 7},{3 * x + x % 7}" for x in range(400)]
    table.write_text("\n".join(["a,b,price", *rows]))
    script = (
        "import sys, time; from pathlib import Path; from isthmus.studio.jobs import Jobs;"
        "words = ['find', sys.argv[2], '--within=120s', '--workers=1'];"
        "print(Jobs(Path(sys.argv[1])).start(words, 'search').id, flush=True);"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(home()), str(table)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout
        name = server.stdout.readline().strip()
        os.kill(server.pid, signal.SIGKILL)
    jobs = Jobs(home())
    assert jobs.is_running(jobs.find(name))
    while not list((home() / "runs").glob("*/record.json")):
        time.sleep(0.2)
    assert jobs.is_running(jobs.find(name))
    jobs.stop(name)
    _wait(jobs, name)
    assert jobs.result(jobs.find(name))["best"]["run"]  # the answer so far
    assert json.loads((home() / "studio" / "jobs" / name / JOB).read_text())["asked_to_stop"]


@pytest.mark.slow
def test_a_command_of_a_terminal_is_paused_and_nothing_else(tmp_path: Path) -> None:
    client = TestClient(create_app(), base_url=HERE, follow_redirects=False)
    config = tiny(tmp_path, train={"epochs": 100_000, "batch_size": 400})
    with subprocess.Popen([sys.executable, "-m", "isthmus", "train", config], stderr=subprocess.DEVNULL) as command:
        try:
            while not (runs := list((home() / "runs").glob("*/metrics.jsonl"))):
                time.sleep(0.1)
            page = f"/runs/{runs[0].parent.name}"
            text = client.get(page).text
            assert "At work in a terminal" in text
            assert f"isthmus train {config}" in text
            for pid in (os.getpid(), 1, ""):
                form = f"pid={pid}&page={page}"
                assert client.post("/commands/pause", content=form, headers={"Origin": HERE}).status_code == 409
            form = f"pid={command.pid}&page=//evil.example"
            answer = client.post("/commands/pause", content=form, headers={"Origin": HERE})
            assert (answer.status_code, answer.headers["Location"]) == (303, "/")
            assert command.wait(60) == 130
        finally:
            command.kill()
    assert "Resume</button>" in client.get(page).text
