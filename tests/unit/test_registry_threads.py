"""The registry parses files for several threads."""

from __future__ import annotations

import ast
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from isthmus.core import registry


def test_one_thread_at_a_time_parses(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = list[int](), list[int]()

    def parse(text: str) -> ast.Module:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return ast.Module([], [])

    monkeypatch.setattr(ast, "parse", parse)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(registry.parse_code, ["1"] * 8))
    assert most == [1] * 8
