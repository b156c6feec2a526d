"""Streams of random numbers that are functions, not states."""

from __future__ import annotations

import hashlib
import math
from functools import cache

import numpy as np
import numpy.typing as npt

ROUNDS = 6
"""Rounds of the Feistel network in `permuted`."""


def stream(seed: int, purpose: str, index: int = 0) -> np.random.Generator:
    """The stream of (seed, purpose, index): the same numbers whenever, wherever and in whatever order it is asked for.

    Philox is counter-based, so a stream costs nothing to enter in the middle. Each purpose has a key of its own:
    drawing more for one never shifts the numbers of another.
    """
    # As unsigned arrays: NumPy would turn a list with a large number in it into floats, and round it.
    key, counter = (np.array(words, dtype=np.uint64) for words in ([seed, _key(purpose)], [0, 0, 0, index]))
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def permuted(seed: int, purpose: str, index: int, count: int, positions: range) -> npt.NDArray[np.int64]:
    """What a random permutation of `count` numbers has at some positions; the others are not computed.

    A Feistel network permutes the numbers of an even number of bits; results beyond `count` are permuted again until
    they are below it (cycle walking).
    """
    half = math.ceil((count - 1).bit_length() / 2)
    keys = stream(seed, purpose, index).integers(2**64, size=ROUNDS, dtype=np.uint64)
    low = np.uint64(2**half - 1)
    found = np.arange(positions.start, positions.stop, dtype=np.uint64)
    beyond = np.ones(len(found), dtype=bool)
    while beyond.any():
        left, right = found[beyond] >> np.uint64(half), found[beyond] & low
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & low)
        found[beyond] = left << np.uint64(half) | right
        beyond = found >= count
    return found.astype(np.int64)


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Each bit of the result depends on all bits of a word (the finaliser of SplitMix64)."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)


@cache
def _key(purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8])
