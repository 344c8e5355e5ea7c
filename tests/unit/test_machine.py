"""What a process asks of the C library: memory that one step frees is there for the next."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from isthmus.core.machine import keep_freed_memory

def step():
    tensors = [torch.ones(1 << 20) for _ in range(8)]  # 32 MB, all freed at the end

def faults():
    for _ in range(3):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
keep_freed_memory()
keep_freed_memory()
print(given_back, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_freed_memory_is_not_faulted_in_again():
    # A library that returns every block of 128 kB at once, as it does on some machines after some histories.
    surroundings = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 10_000  # five steps of eight tensors of 1,024 pages
    assert kept < given_back / 20
