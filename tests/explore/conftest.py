"""Two runs and a server, once for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exhibits import QUIET, serving, train_two
from oneway.explore import prepare
from oneway.explore.limits import Limits
from oneway.explore.server import Exhibit

PATIENCE = 0.6  # seconds that this server waits for a body


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs."""
    return train_two(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def exhibit(folders: list[Path]) -> Exhibit:
    """Both of them."""
    return prepare(folders, QUIET)


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
