"""Images that look like others, by their fingerprints.

Shapes: N and M fingerprints of D cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ALIKE = 0.9
"""Similarity from which two images are near-duplicates. In CamVid, all frames 1/15 s apart reach it, and one in ten
thousand pairs of those at least 10 s apart, where the car stands still."""

FLOOR = 0.05  # deviation that may be noise, in units of the standard deviation of an image's grey values
BLOCK = 2048  # fingerprints compared with as many others at once: 16 MiB of similarities

Floats = npt.NDArray[np.float32]


def nearest(pool: Sequence[bytes], queries: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], Floats]:
    """For each of M queries, the index of the most similar of N fingerprints, and the similarity: 1 at most."""
    features = _features([*pool, *queries])
    return _most_similar(features[: len(pool)], features[len(pool) :], themselves=False)


def nearest_other(fingerprints: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], Floats]:
    """The same for each of N fingerprints among all the others."""
    features = _features(fingerprints)
    return _most_similar(features, features, themselves=True)


def _most_similar(known: Floats, asked: Floats, *, themselves: bool) -> tuple[npt.NDArray[np.int64], Floats]:
    best = np.full(len(asked), -np.inf, dtype=np.float32)
    index = np.zeros(len(asked), dtype=np.int64)
    for row in range(0, len(asked), BLOCK):
        rows = slice(row, row + BLOCK)
        for column in range(0, len(known), BLOCK):
            similarity = asked[rows] @ known[column : column + BLOCK].T
            if themselves and row == column:
                np.fill_diagonal(similarity, -np.inf)
            candidate = similarity.argmax(axis=1)
            value = np.take_along_axis(similarity, candidate[:, None], axis=1)[:, 0]
            better = value > best[rows]
            best[rows][better], index[rows][better] = value[better], column + candidate[better]
    return index, best


def _features(fingerprints: Sequence[bytes]) -> Floats:
    """N×(D+1) unit vectors whose scalar products are similarities, free of brightness and contrast.

    What all images of a set share, sky above and road below or a fixed background, makes none of them a duplicate: it
    is taken out with the mean. The sum is divided by N + 1, so that with two or three images the mean does not remove
    what they show. A last, constant component makes alike what differs by noise only.
    """
    if not fingerprints:
        return np.zeros((0, 1), dtype=np.float32)
    grey = np.frombuffer(b"".join(fingerprints), dtype=np.uint8).reshape(len(fingerprints), -1).astype(np.float32)
    grey -= grey.mean(axis=1, keepdims=True)
    cells = grey / np.maximum(grey.std(axis=1, keepdims=True), 1)
    cells = cells - cells.sum(axis=0) / (len(cells) + 1)
    floor = np.full((len(cells), 1), FLOOR * np.sqrt(cells.shape[1]), dtype=np.float32)
    features = np.concatenate([cells, floor], axis=1)
    return features / np.linalg.norm(features, axis=1, keepdims=True)
