"""Threads are as many as cores that the process may use."""

from __future__ import annotations

import os

import pytest

from forks import run_code


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity of processes here")
def test_a_process_on_one_core_has_few_threads():
    """Of 64 that the machine has, a container leaves it one: the others would wait for it, and take memory."""
    run_code("""
import os, threading
os.cpu_count = lambda: 64
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from oneway.common.threads import count_cores
from oneway.common.threads import in_threads
from oneway.tools.predict.batches import THREADS
assert count_cores() == 1
assert len({*in_threads(lambda _: threading.get_ident(), range(100))}) == 1
assert THREADS == 2
""")
