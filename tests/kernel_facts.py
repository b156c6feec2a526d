"""Facts about kernels, in a process of their own: compiled where there is a GPU, interpreted elsewhere.

Triton decides between the two when it is imported, and the process that runs the tests has imported it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def assert_facts(file: str, name: str) -> None:
    """Those of a file that have the name in theirs."""
    environment = os.environ if DEVICE.type == "cuda" else {**os.environ, "TRITON_INTERPRET": "1"}
    options = ("-q", "-o", "python_functions=fact_*", "-p", "no:cacheprovider", "-k", name)
    command = [sys.executable, "-m", "pytest", *options, file]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
