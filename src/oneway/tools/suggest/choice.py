"""Which of the scored images: the most difficult, no two of them alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oneway.data.check.duplicates import ALIKE, nearest
from oneway.tools.suggest.scores import Score


def choose_spread(scores: Sequence[Score], labelled: Sequence[bytes], count: int) -> tuple[list[int], int]:
    """Indices of up to `count` scores, best first, and how many were left out as near-duplicates.

    Greedily takes the one with the highest product of its value and its distance from all that are taken or
    labelled (by fingerprint); near-duplicates of those are never taken.
    """
    fingerprints = [*(score.fingerprint for score in scores), *labelled]
    values = np.array([score.value for score in scores])
    similarity = np.zeros(len(scores))
    if labelled:
        similarity = nearest(labelled, fingerprints[: len(scores)])[1].astype(np.float64)
    taken: list[int] = []
    free = np.ones(len(scores), dtype=bool)
    while len(taken) < count:
        free &= similarity < ALIKE
        if not free.any():
            break
        best = int(np.argmax(np.where(free, (values + 1e-9) * (1 - np.clip(similarity, 0, 1)), -1)))
        taken.append(best)
        # All fingerprints go in every time, since similarity is judged against what a whole set has in common.
        others = [index for index in range(len(fingerprints)) if index != best]
        to_best = nearest([fingerprints[best]], [fingerprints[index] for index in others])[1]
        similarity_to_best = np.ones(len(fingerprints))
        similarity_to_best[others] = to_best
        similarity = np.maximum(similarity, similarity_to_best[: len(scores)])
    return taken, int((similarity >= ALIKE).sum()) - len(taken)
