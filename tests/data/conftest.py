"""A data set for a test to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.decoded import write_set


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five training images, three with masks, and two to validate on; the cache goes beside them."""
    return write_set(tmp_path / "photos")
