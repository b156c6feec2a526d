"""Two moons: points on two interleaved half circles, with noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oneway.common.streams import stream

CLASSES = ("upper", "lower")
COLOURS = ((192, 57, 43), (41, 98, 168))
TRAINING_POINTS, VALIDATION_POINTS = 160, 40
DEVIATION = 0.08


def points(seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """200×2 points and their classes, in random order."""
    random = stream(seed, "moons")
    count = TRAINING_POINTS + VALIDATION_POINTS
    label = random.permutation(np.arange(count) % 2).astype(np.uint8)
    angle = random.uniform(0, np.pi, count)
    x = np.where(label == 0, np.cos(angle), 1 - np.cos(angle))
    y = np.where(label == 0, np.sin(angle), 0.5 - np.sin(angle))
    noisy = np.stack((x, y), axis=1) + DEVIATION * random.standard_normal((count, 2))
    return noisy.astype(np.float32), label
