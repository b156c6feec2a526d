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
    # As unsigned arrays: NumPy would turn a list with a large number in it into floats, and round it.
    key, counter = (np.array(words, dtype=np.uint64) for words in ([seed, _key(purpose)], [0, 0, 0, index]))
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


@cache
def _key(purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8])
