"""Which training images count as labelled."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway.data.dataset import Samples
from oneway.errors import UserError
from oneway.streams import stream


@dataclass(frozen=True)
class Split:
    """Names of the labelled images, and of those that serve without their labels (labelled ones among them)."""

    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Identifies the split: the same names in the same roles give the same hash."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()

    def to_json(self) -> str:
        """As kept in a run folder."""
        return json.dumps({"hash": self.hash, **asdict(self)}, indent=1)


def choose(samples: Samples, labels: str, seed: int) -> Split:
    """The split that `labels` asks for: a fraction, a number, or a file of names.

    Where whole images have a class, each class gets the same number of labels, give or take one. Consistency uses every
    training image, the labelled ones too, as in the paper.
    """
    names = samples.names
    if Path(labels).is_file():
        return Split(_from_file(Path(labels), names), names)
    count = _count(labels, len(names))
    order = stream(seed, "split").permutation(len(names))
    if samples.labels.ndim == 1:
        order = _alternating(order, samples.labels[order])
    return Split(tuple(names[index] for index in sorted(order[:count])), names)


def _alternating(order: npt.NDArray[np.int64], classes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """`order` rearranged so that the first of every class come first, then the second of every class, and so on."""
    turn = np.zeros(len(order), dtype=np.int64)
    for label in np.unique(classes):
        members = classes == label
        turn[members] = np.arange(members.sum())
    return order[np.argsort(turn, kind="stable")]


def _count(labels: str, available: int) -> int:
    """`45`, or `1/8` of what is available, rounded down."""
    way_out = f"Give a number from 1 to {available}, a fraction such as 1/8, or a file with one image name per line."
    numerator, slash, denominator = labels.partition("/")
    try:
        count = available * int(numerator) // int(denominator) if slash else int(labels)
    except (ValueError, ZeroDivisionError):
        raise UserError(f"--labels {labels}: neither a number, nor a fraction, nor a file. {way_out}") from None
    if count < 1:
        raise UserError(f"--labels {labels}: no image would be labelled. {way_out}")
    if count > available:
        raise UserError(f"--labels {labels}: asks for {count} labelled images, there are {available}. {way_out}")
    return count


def _from_file(path: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        listed = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file. Give one with an image name per line.") from None
    if not listed:
        raise UserError(f"{path}: lists no image.")
    known = set(names)
    for number, name in enumerate(listed, start=1):
        if name not in known:
            raise UserError(f"{path}:{number}: there is no training image '{name}' (the first is called '{names[0]}').")
    return tuple(sorted(set(listed)))
