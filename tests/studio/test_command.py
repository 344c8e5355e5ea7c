"""`isthmus studio` on the command line."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from isthmus.core.errors import UserError
from isthmus.studio.server import create_app, start_demo
from tests.command_line import call


def test_the_studio_answers_and_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "isthmus", "studio", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as studio:
        assert studio.stdout
        assert studio.stderr
        try:
            address = studio.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert "Isthmus Studio" in answer.read().decode()
            os.kill(studio.pid, signal.SIGINT)
            assert studio.wait(20) == 0
            assert "Traceback" not in studio.stderr.read()
        finally:
            studio.kill()


@contextlib.contextmanager
def _opened(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A studio in a process of its own, and its port."""
    command = [sys.executable, "-m", "isthmus", "studio", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as studio:
        assert studio.stdout
        try:
            yield studio, int(studio.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        finally:
            studio.kill()


def _ask(port: int, path: str, method: str = "GET", body: bytes | None = None) -> tuple[str, str]:
    """The text of an answer, and the page to which it leads."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, {"Origin": f"http://127.0.0.1:{port}"})
        answer = connection.getresponse()
        assert answer.status in (200, 303), answer.status
        return answer.read().decode(), answer.headers.get("Location", "")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_server_harms_no_search_and_the_next_one_follows_it() -> None:
    table = "a,b,price\n" + "".join(f"{x},{x % 5},{3 * x + x % 4}\n" for x in range(200))
    with _opened() as (studio, port):
        start = json.loads(_ask(port, "/uploads/houses.csv", "PUT", table.encode())[0])["page"]
        page = _ask(port, start, "POST", b"target=price&budget=2k&within=25s")[1]
        while "at work" not in _ask(port, page)[0]:
            time.sleep(0.1)
        while " 0 at work" in (text := _ask(port, page)[0]) or "0 of 0 runs" in text:
            time.sleep(0.1)
        assert "in a terminal" not in text  # the studio itself is no command to pause
        studio.kill()
    with _opened(port) as (_, again):
        assert again == port
        text = _ask(port, page)[0]
        assert "Pause</button>" in text or "recommended run" in text
        while "recommended run" not in (text := _ask(port, page)[0]):
            time.sleep(0.5)
        assert "failed" not in text


def test_wrong_addresses_are_one_line() -> None:
    for options in (("--host", "no.such.host.invalid"), ("--host", "203.0.113.9"), ("--port", "99999")):
        answer = call("studio", *options)
        assert answer.code == 2
        assert "Traceback" not in answer.err


@pytest.mark.slow
def test_the_demonstration_needs_no_earlier_run() -> None:
    studio = create_app().state.studio
    page = start_demo(studio)
    assert start_demo(studio) == page  # it is at work already
    (job,) = studio.jobs.newest()
    assert page == f"/problems/{job.problem}"
    ends = time.monotonic() + 100
    while not studio.index.answers:
        has_result = any(run.problem == job.problem and run.has_ended for run in studio.index.runs.values())
        if has_result and not studio.jobs.find(job.id).asked_to_stop:  # a second time would end it at once
            with contextlib.suppress(UserError):  # it has ended meanwhile
                studio.jobs.stop(job.id)
        assert time.monotonic() < ends
        time.sleep(0.5)
        studio.index.update()
    while studio.jobs.is_running(job):
        time.sleep(0.1)
    assert start_demo(studio) == page
    assert len(studio.jobs.newest()) == 1  # it has been answered
