"""Which training images count as labelled."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.data.dataset import PoolRecord, Samples
from oneway.data.name_lists import images_in_list

DIGITS = 16
"""Length of an image's digest in `split.json`: by chance, no two of a million images have the same."""

RULE = "all images of the pool train without labels, numbered after those in `unlabelled`"


@dataclass(frozen=True)
class Split:
    """Names of the images that train with their labels, and of those that train without (labelled ones among them)."""

    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]

    content: str = ""
    """A digest of the training data."""

    validation: str = ""
    """A digest of the validation data."""

    validating: tuple[str, ...] = ()
    """Names of the images that validate; none in what earlier versions wrote."""

    digests: tuple[str, ...] = ()
    """Digests of the pixels of `unlabelled`, empty for what is no file; earlier versions wrote none."""

    began_with: tuple[str, ...] = ()
    """Likewise of images whose labels taught what the run began with, an earlier run's weights or a teacher; and of
    those that taught what these began with, or taught the run itself before its split was changed."""

    pool: PoolRecord | None = None
    """Further images that train without labels, all of them; in numbers, they follow on `unlabelled`."""

    @property
    def further(self) -> int:
        """How many images train without their labels, and never with them."""
        return len(set(self.unlabelled) - set(self.labelled)) + (self.pool.images if self.pool else 0)

    @property
    def taught(self) -> tuple[str, ...]:
        """The digests of all images whose labels are in the model, by whichever way."""
        roles = self._roles.items()
        return tuple(sorted(digest for digest, role in roles if role == "labelled"))

    def know(self, digests: Mapping[str, str], validating: tuple[str, ...]) -> Split:
        """The same split, in which images can be recognised by their content."""
        known = tuple(digests.get(name, "")[:DIGITS] for name in self.unlabelled)
        return replace(self, digests=known if any(known) else (), validating=validating)

    def taught_by(self, digest: str) -> str | None:
        """What the image with this digest of its pixels did in training: "labelled", "unlabelled", or nothing."""
        return self._roles.get(digest[:DIGITS])

    @cached_property
    def _roles(self) -> dict[str, str]:
        labelled = set(self.labelled)
        names = zip(self.unlabelled, self.digests, strict=False)
        roles = [("labelled" if name in labelled else "unlabelled", digest) for name, digest in names if digest]
        roles += [("labelled", digest) for digest in self.began_with]
        return {digest: role for role, digest in sorted(roles, reverse=True)}  # of copies, the one with a label counts

    @property
    def hash(self) -> str:
        """Identifies the split: the same names in the same roles give the same hash."""
        names: dict[str, object] = {"labelled": self.labelled, "unlabelled": self.unlabelled}
        if self.pool is not None:
            names["pool"] = self.pool
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def to_json(self) -> str:
        """The content of `split.json`."""
        parts = asdict(replace(self, pool=None))
        del parts["pool"]
        if self.pool is not None:
            parts["pool"] = {**self.pool._asdict(), "rule": RULE}
        return json.dumps({"hash": self.hash, **parts}, indent=1)


def places(samples: Samples, split: Split) -> tuple[list[int], Sequence[int]]:
    """The numbers of the labelled and of the unlabelled images among all samples."""
    place = {name: index for index, name in enumerate(samples.names)}
    labelled = [place[name] for name in split.labelled]
    if split.pool is not None:  # of which all train, as do all others
        return labelled, range(len(samples) + split.pool.images)
    return labelled, [place[name] for name in split.unlabelled]


def choose(samples: Samples, labels: str, seed: int, validation: tuple[str, ...] = ()) -> Split:
    """The split that `labels` asks for: a fraction, a number, `all`, or a file of names.

    Only images that come with labels can be chosen. Where whole images have a class, each class gets the same number of
    labels, give or take one. Consistency uses every training image, the labelled ones too, as in the paper. A file may
    name an image of `validation` by mistake: then that is said.
    """
    candidates = samples.names[: samples.labelled]
    if not candidates:
        raise UserError("No training image has labels; a few are needed to learn the classes from.")
    count = _count(labels, len(candidates))
    if count is None:
        listed = images_in_list(Path(labels), candidates, samples.names, validation)
        return Split(listed, samples.names, samples.content, pool=samples.pool_record)
    order = stream(seed, "split").permutation(len(candidates))
    if not samples.dense:
        order = _alternating(order, samples.labels[order])
    chosen = tuple(candidates[index] for index in sorted(order[:count]))
    return Split(chosen, samples.names, samples.content, pool=samples.pool_record)


def _alternating(order: npt.NDArray[np.int64], classes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """`order` rearranged so that the first of every class come first, then the second of every class, and so on."""
    turn = np.zeros(len(order), dtype=np.int64)
    for label in np.unique(classes):
        members = classes == label
        turn[members] = np.arange(members.sum())
    return order[np.argsort(turn, kind="stable")]


def refuse_unreadable(labels: str) -> None:
    """Refuse what asks for labels in no way that is known, before anyone knows how many images there are."""
    _count(labels, None)


def _count(labels: str, available: int | None) -> int | None:
    """`all`, `45`, or `1/8` of what is available, rounded down; None where `labels` is a file."""
    most = "" if available is None else f" from 1 to {available}"
    way_out = f"Give a number{most}, a fraction such as 1/8, all, or a file with one image name per line."
    available = sys.maxsize if available is None else available
    if labels == "all":
        return available
    numerator, slash, denominator = labels.partition("/")
    try:
        count = available * int(numerator) // int(denominator) if slash else int(labels)
    except (ValueError, ZeroDivisionError):
        if os.path.isfile(labels):  # which, unlike Path.is_file, answers whatever the text
            return None
        raise UserError(f"--labels {labels}: neither a number, nor a fraction, nor a file. {way_out}") from None
    if count < 1:
        raise UserError(f"--labels {labels}: no image would be labelled. {way_out}")
    if most and count > available:
        raise UserError(f"--labels {labels}: asks for {count} labelled images, there are {available}. {way_out}")
    return count
