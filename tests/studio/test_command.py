"""`isthmus studio` on the command line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request

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
        if any(run.problem == job.problem and run.has_ended for run in studio.index.runs.values()):
            with contextlib.suppress(UserError):  # it has ended meanwhile
                studio.jobs.stop(job.id)
        assert time.monotonic() < ends
        time.sleep(0.5)
        studio.index.update()
    while studio.jobs.is_running(job):
        time.sleep(0.1)
    assert start_demo(studio) == page
    assert len(studio.jobs.newest()) == 1  # it has been answered
