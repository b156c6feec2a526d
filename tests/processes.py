"""The command as a user types it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def oneway(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `oneway …` in a folder and returns what it printed."""
    command = [sys.executable, "-m", "oneway", *map(str, arguments)]
    variables = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, env=variables)
