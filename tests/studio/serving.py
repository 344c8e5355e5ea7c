"""A studio that really listens, in a thread of the test."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isthmus.studio.server import create_app, make_server, open_socket


@contextmanager
def serving(port: int = 0) -> Iterator[int]:
    """Serve the home of this test; yields the port."""
    with open_socket("127.0.0.1", port) as opened:
        server = make_server(create_app())
        thread = threading.Thread(target=server.run, args=([opened],))
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield opened.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def following(port: int, path: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a page, each as the parts that changed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    connection.request("GET", f"/events{path}")
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    assert answer.headers["Content-Type"].startswith("text/event-stream")

    def events() -> Iterator[dict[str, Any]]:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    try:
        yield events()
    finally:
        connection.close()
