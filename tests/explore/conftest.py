"""A server of two runs, once for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from explore.exhibits import serving
from oneway.tools.explore import prepare
from oneway.tools.explore.limits import Limits
from oneway.tools.explore.server import Exhibit
from small_runs import QUIET

PATIENCE = 0.6  # seconds that this server waits for a body


@pytest.fixture(scope="module")
def exhibit(two_runs: list[Path]) -> Exhibit:
    """Both runs."""
    return prepare(two_runs, QUIET)


@pytest.fixture(scope="module")
def address(exhibit: Exhibit) -> Iterator[str]:
    """Where they are served."""
    with serving(exhibit, Limits(patience=PATIENCE)) as found:
        yield found


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    """Who asks there."""
    with httpx.Client(base_url=address, timeout=30) as found:
        yield found
