"""Facts about kernels, in a process of their own: compiled where there is a GPU, interpreted elsewhere.

Triton decides between the two when it is imported, and the process that runs the tests has imported it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from forks import start

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROOT = Path(__file__).parent.parent
SECONDS = 300


def assert_facts(file: str, name: str) -> None:
    """Those of a file that have the name in theirs."""
    options = ["-q", "-o", "python_functions=fact_*", "-p", "no:cacheprovider", "-k", name, file]
    if DEVICE.type == "cuda":
        command = [sys.executable, "-m", "pytest", *options]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    with TemporaryDirectory() as output:
        facts = {"function": "kernel_facts:check", "arguments": {"options": options}}
        job = start(ROOT, output=Path(output), kind="interpreted", **facts)
        status = job.wait()
        said = "".join((Path(output) / f"{job.name}.{stream}").read_text() for stream in ("out", "err"))
    assert status == 0, said


def check(options: list[str]) -> None:
    """Within that process, which ends with the status of pytest, or by a signal where it takes too long."""
    signal.alarm(SECONDS)
    sys.exit(pytest.main(options))
