"""A server of two runs, once for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from explore.serving import serving
from oneway.tools.explore import prepare
from oneway.tools.explore.limits import Limits
from oneway.tools.explore.server import PageContent
from small_runs import QUIET

PATIENCE = 0.6  # seconds that this server waits for a body


@pytest.fixture(scope="module")
def page_content(two_runs: list[Path]) -> PageContent:
    """Both runs."""
    return prepare(two_runs, QUIET)


@pytest.fixture(scope="module")
def address(page_content: PageContent) -> Iterator[str]:
    """Where they are served."""
    with serving(page_content, Limits(timeout=PATIENCE)) as found:
        yield found


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    """Who asks there."""
    with httpx.Client(base_url=address, timeout=30) as found:
        yield found
