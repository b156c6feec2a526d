"""Files that cost a decoder minutes or gigabytes, at full size; and the page, which ends when it is told to."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx
import pytest

from forks import called
from reliability.harness import undisturbed

pytestmark = pytest.mark.slow

PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_a_budget_for_every_hostile_file(part, tmp_path, tally):
    """Every reader that it can reach ends within 2 s and 300 MiB, by reading it or with our own error."""
    result = called(tmp_path, "reliability.budget:budget", folder=str(tmp_path / "files"), part=part, parts=PARTS)
    tally("7 hostile files: time and memory", result["tried"], result["tried"] - len(result["wrong"]))
    assert not result["wrong"]


BUSY = """
import sys, time
from oneway.cli import main
from oneway.tools.explore.compute import Comparer

def compute_for_long(*arguments):
    print("computing", flush=True)
    time.sleep(30)

Comparer.compare = compute_for_long
sys.argv = ["oneway", "explore", "run", "--port", "0"]
main()
"""


def test_the_page_ends_whatever_it_computes(tmp_path, tally):
    """Ctrl-C, while a comparison takes half a minute: within 2 s, with status 0 and without a traceback."""
    shutil.copytree(undisturbed(), tmp_path / "run")
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        address = next(line.split()[0] for line in process.stdout if line.startswith("http://"))
        about = httpx.get(f"{address}api/about").json()
        question = {"image": about["images"][0]["key"]}
        asking = threading.Thread(target=_ask, args=(f"{address}api/compare", question))
        asking.start()
        assert process.stdout.readline().strip() == "computing"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        seconds = time.monotonic() - began
        asking.join()
    finally:
        process.kill()
        process.wait()
    survived = seconds < 2 and process.returncode == 0 and "Traceback" not in errors
    tally("14 the page: Ctrl-C while it computes", 1, survived)
    assert survived, f"{seconds:.1f} s, status {process.returncode}: {errors}"


def _ask(address: str, question: dict[str, str]) -> None:
    with suppress(httpx.HTTPError):
        httpx.post(address, json=question, timeout=30)
