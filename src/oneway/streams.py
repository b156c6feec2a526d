"""Streams of random numbers that are functions, not states."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np


def stream(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """The stream of (seed, purpose, index): the same numbers whenever, wherever and in whatever order it is asked for.

    Philox is counter-based, so a stream costs nothing to enter in the middle. Each purpose has a key of its own:
    drawing more for one never shifts the numbers of another.
    """
    return np.random.Generator(np.random.Philox(key=[seed, _key(purpose)], counter=[0, 0, 0, index]))


@cache
def _key(purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8])
