"""Which images to label next: greedily the one worth most, and none that looks like one that is taken or labelled.

Shapes: N images to choose from, M that are labelled or taken already; K features of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console

from oneway.common.terms import SuggestBy
from oneway.data import QUIET
from oneway.data.check.duplicates import ALIKE, nearest
from oneway.data.check.survey import fingerprint
from oneway.models.features import feature_channels, has_encoder
from oneway.tools.suggest.candidates import Candidate
from oneway.tools.suggest.judge import NEEDS_FEATURES, Floats, Judge
from oneway.tools.suggest.scores import Score, score_images

SMALLEST = 1e-6


@dataclass(frozen=True)
class Choice:
    """Which images to label next, best first, and what was left out."""

    chosen: tuple[Score, ...]
    alike: int
    """Images that were left out because they look like one that is suggested or labelled."""

    unreadable: tuple[str, ...]
    """Why single files could not be used."""

    among: int
    """Images to choose from."""


def choose_among(
    judge: Judge,
    candidates: Sequence[Candidate],
    labelled: Sequence[Candidate],
    count: int,
    by: SuggestBy | None,
    console: Console,
) -> Choice:
    """Score all candidates, and choose up to `count` of them.

    By `doubt`, the model's entropy with every class weighing the same; by `features`, the distance to all labelled
    images in the encoder's features; or by `both`, their product, the default where the model has an encoder.
    """
    by = by or ("both" if has_encoder(judge.network) else "doubt")
    if by in NEEDS_FEATURES:
        feature_channels(judge.network)  # or every image would fail
    scores, unreadable = score_images(judge, candidates, console, by)
    if not scores:
        return Choice((), 0, tuple(unreadable), len(candidates))
    if by in NEEDS_FEATURES:
        there = score_images(judge, labelled, QUIET, by)[0]
        scores, there = standardise(scores, there)
        if by == "features":
            values = distances(features_of(scores), features_of(there))
            scores = [
                replace(score, value=float(value / values.mean())) for score, value in zip(scores, values, strict=True)
            ]
    else:
        there = [Score(image.name, 0.0, 0.0, fingerprint(np.asarray(image.read()))) for image in labelled]
    chosen, alike = choose(scores, there, count, by)
    return Choice(tuple(chosen), alike, tuple(unreadable), len(candidates))


def choose(
    scores: Sequence[Score], labelled: Sequence[Score], count: int, by: SuggestBy = "doubt"
) -> tuple[list[Score], int]:
    """Up to `count` scores, best first, with what they were taken by; and how many were left out as near-duplicates.

    Greedily takes the one that is worth most beside those that are taken or labelled; near-duplicates of those (by
    fingerprint) are never taken.
    """
    prints = [score.fingerprint for score in (*scores, *labelled)]
    similarity = np.zeros(len(scores))
    if labelled:
        similarity = nearest(prints[len(scores) :], prints[: len(scores)])[1].astype(np.float64)
    taken: list[Score] = []
    features = features_of(scores)
    away = 1 - np.clip(similarity, 0, 1) if by == "doubt" else distances(features, features_of(labelled))
    while len(taken) < count and (free := similarity < ALIKE).any():
        values = worth(scores, away, by)
        best = int(np.argmax(np.where(free, values, -1)))
        alone = by != "doubt" and not (labelled or taken)  # the first of all has no other image to be far from
        figures = (None, None) if alone else (float(away[best]), float(values[best]))
        taken.append(replace(scores[best], distance=figures[0], worth=figures[1]))
        # All fingerprints go in every time, since similarity is judged against what a whole set has in common.
        to_best = nearest([prints[best]], [*prints[:best], *prints[best + 1 :]])[1]
        similarity = np.maximum(similarity, np.insert(to_best.astype(np.float64), best, 1)[: len(scores)])
        if by == "doubt":
            away = 1 - np.clip(similarity, 0, 1)
        else:
            from_best = distances(features, features[best : best + 1])
            away = from_best if alone else np.minimum(away, from_best)
    return taken, int((similarity >= ALIKE).sum()) - len(taken)


def worth(scores: Sequence[Score], away: Floats, by: SuggestBy) -> Floats:
    """N: what the label of each image is worth, given how far it is from the nearest that is labelled or taken."""
    if by == "features":
        return away
    values = np.array([score.value for score in scores]) + 1e-9
    return values * (away**2 if by == "both" else away)


def standardise(scores: Sequence[Score], there: Sequence[Score]) -> tuple[list[Score], list[Score]]:
    """The scores with standardised features: mean 0 and deviation 1 over all images, then scaled to unit length."""
    features = features_of([*scores, *there])
    features = (features - features.mean(axis=0)) / features.std(axis=0).clip(min=SMALLEST)
    features /= np.linalg.norm(features, axis=1, keepdims=True).clip(min=SMALLEST)
    found = [replace(score, features=row) for score, row in zip((*scores, *there), features, strict=True)]
    return found[: len(scores)], found[len(scores) :]


def features_of(scores: Sequence[Score]) -> Floats:
    """N×K features of N images."""
    return np.array([score.features for score in scores])


def distances(features: Floats, others: Floats) -> Floats:
    """Distances from the features of each image to the nearest of M others, as greedy k-centre selection needs them.

    Without others, images closer to the mean get more, so that the most typical one is taken first.
    """
    if not len(others):
        return 1 / (1 + np.linalg.norm(features - features.mean(axis=0), axis=1))
    squares = (features**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * features @ others.T
    return np.sqrt(squares.min(axis=1).clip(min=0))
