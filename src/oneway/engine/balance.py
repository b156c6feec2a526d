"""Class weights from the class frequencies of a run's labelled images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oneway.engine.store import Images


def class_weights(samples: Images, labelled: Sequence[int], classes: int) -> Tensor:
    """C weights ∝ 1/√frequency, whose mean over all labelled pixels is 1; 0 for a class that does not occur."""
    roots = np.sqrt(class_counts(samples, labelled, classes))
    weights = np.divide(1, roots, out=np.zeros(classes), where=roots > 0)
    total = (roots**2).sum()
    # The sum over all labelled pixels of their weights is that of the roots.
    return torch.from_numpy(weights * total / max(1, roots.sum())).float()


def class_counts(samples: Images, labelled: Sequence[int], classes: int) -> npt.NDArray[np.int64]:
    """C counts: the labelled pixels of each class; for classified images, the images of each class."""
    counts = np.zeros(256, dtype=np.int64)
    for item in labelled:
        start, length = (samples.starts[item], samples.sizes[item].prod()) if samples.dense else (item, 1)
        counts += np.bincount(samples.labels[start : start + length].reshape(-1), minlength=256)
    return counts[:classes]
