"""What a process asks of the C library: memory that one step frees is there for the next."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from isthmus.core.machine import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
    keep_freed_memory()
def step():
    tensors = [torch.ones(1 << 20) for _ in range(16)]  # 64 MB, all freed at the end
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    # A library that returns every block of 128 kB at once, as it does on some machines after some histories.
    surroundings = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", FAULTS, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_freed_memory_is_not_faulted_in_again():
    given_back, kept = faults("given back"), faults("kept")
    assert given_back > 10_000  # ten steps of sixteen tensors of 1,024 pages
    assert kept < given_back / 20
