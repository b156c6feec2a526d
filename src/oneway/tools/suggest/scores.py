"""Scores of unlabelled images for choosing which to label.

Shapes: N images, C classes, K features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.terms import SuggestBy
from oneway.common.words import say
from oneway.data.check.survey import fingerprint
from oneway.data.dataset import Bytes
from oneway.tools.suggest.candidates import Candidate
from oneway.tools.suggest.judge import Floats, Judge


@dataclass(frozen=True)
class Score:
    """What a model says about one image."""

    name: str
    value: float
    """What the model is unsure of: 1 is the average of all that were scored."""

    doubt: float
    """Entropy of the prediction: mean over pixels."""

    fingerprint: bytes
    features: Floats = field(default_factory=lambda: np.zeros(0), compare=False)
    """K: what the encoder makes of it, mean over the cells of each feature map."""

    distance: float | None = None
    """Distance of an image that is taken to the nearest that is labelled or was taken before; None without any."""

    worth: float | None = None
    """What it was taken by: no later one has more; None where there was nothing to be far from."""


def score_images(
    judge: Judge, candidates: Sequence[Candidate], console: Console, by: SuggestBy = "doubt"
) -> tuple[list[Score], list[str]]:
    """A score for each image that can be read, and why the others cannot; says how many were made smaller for it."""
    larger, unreadable = 0, list[str]()
    found: list[tuple[str, bytes, Floats, Floats]] = []
    with progress_bar(console, "Scoring images", len(candidates)) as advance:
        for names, images in _batches(judge, candidates, unreadable, advance):
            larger += len(images) if images[0][..., 0].size > judge.most else 0
            try:
                found += zip(names, map(fingerprint, images), *judge.look(images, by), strict=True)
            except UserError as error:
                unreadable += [f"{name}: {error}" for name in names]
            for _ in names:
                advance()
    if larger:
        say(
            console,
            f"Note: {larger} of {len(candidates)} images have more than {judge.most / 1e6:.1f} megapixels and are "
            "scored at a smaller size, where their order can be somewhat another.",
        )
    if not found:
        return [], unreadable
    values = balance_classes(np.stack([doubts for _, _, doubts, _ in found]))
    scores = [
        Score(name, float(value), float(doubts.sum()), known, features)
        for value, (name, known, doubts, features) in zip(values, found, strict=True)
    ]
    return scores, unreadable


def _batches(
    judge: Judge, candidates: Sequence[Candidate], unreadable: list[str], advance: Callable[[], None]
) -> Iterator[tuple[list[str], list[Bytes]]]:
    """Names and pixels of images that follow on each other and have one size; why one cannot be read is noted."""
    names: list[str] = []
    images: list[Bytes] = []
    for candidate in candidates:
        try:
            pixels = np.asarray(candidate.read())
        except UserError as error:
            unreadable.append(f"{candidate.name}: {error}")
            advance()
            continue
        full = (len(images) + 1) * pixels[..., 0].size > judge.at_once
        if images and (full or images[0].shape != pixels.shape):
            yield names, images
            names, images = [], []
        names.append(candidate.name)
        images.append(pixels)
    if images:
        yield names, images


def balance_classes(doubts: Floats) -> Floats:
    """N values from N×C doubts: how many times the average of all images each has, as a mean over classes.

    A sum over classes would be about those that fill images. Here every class counts the same, as it does in mIoU: what
    is rare in the labels is rarely thought of, and an image that brings it to mind stands out.
    """
    averages = doubts.mean(axis=0).clip(min=np.finfo(doubts.dtype).tiny)  # of a class never thought of: 0
    return (doubts / averages).mean(axis=1)
