"""Which labelled images are held out to validate, where a folder has no validation set."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

import numpy as np

from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.common.terms import IGNORE
from oneway.common.threads import in_threads
from oneway.data.dataset import Bytes, Item
from oneway.data.decode.plausible import MOST_PIXELS
from oneway.data.folder.description import FILE
from oneway.data.folder.groups import group_of

MOST_LOOKED_AT = 100  # labelled images up to which a draw may miss a class, and looking at all takes little time


def may_validate(labelled: Sequence[Item]) -> list[Item]:
    """The labelled images that may validate: a model is judged by what no model has drawn."""
    return [item for item in labelled if not item.predicted]


def hold_out(labelled: Sequence[Item], holdout: float, seed: int, groups: str | None) -> tuple[Item, ...]:
    """A share of the labelled images, in order of name: none, or else some and not all; of groups, all or none.

    Each name has a random number of its own, so that labelling more images leaves most of those that validate in place.
    """
    if not holdout:
        return ()
    members = _draw(labelled, seed, groups)
    if len(members) < 2:
        raise UserError(
            f"By `groups: {groups}`, all {len(labelled)} labelled images are one group ({next(iter(members))!r}), and "
            f"none can validate. Change it in {FILE}, or name a validation set there."
        )
    count, chosen = _count(labelled, holdout), list[Item]()
    for group in [*members][:-1]:
        chosen += members[group] if len(chosen) < count else ()
    return tuple(sorted(chosen, key=lambda item: item.name))


def _draw(labelled: Sequence[Item], seed: int, groups: str | None) -> dict[str, list[Item]]:
    """The images of each group, in the order in which groups are held out."""
    members: dict[str, list[Item]] = defaultdict(list)
    for item in labelled:
        members[item.name if groups is None else group_of(item.name, groups)].append(item)
    return {
        name: members[name] for name in sorted(members, key=lambda name: stream(seed, f"holdout of {name}").random())
    }


def _count(labelled: Sequence[Item], holdout: float) -> int:
    return min(max(round(holdout * len(labelled)), 1), len(labelled) - 1)


def with_all_classes(
    plain: tuple[Item, ...],
    labelled: Sequence[Item],
    holdout: float,
    seed: int,
    groups: str | None,
    read_labels: Callable[[Item], Bytes],
) -> tuple[Item, ...]:
    """Other images than those of `hold_out`, as many, if classes that it leaves on one side alone are then on both.

    Those that count are in two groups or more. Of many images, and where labels cannot be read, the plain draw is kept.
    """
    if not plain or len(labelled) > MOST_LOOKED_AT:
        return plain
    members = _draw(labelled, seed, groups)
    try:
        shown = dict(zip(labelled, in_threads(lambda item: _classes_in(read_labels(item)), labelled), strict=True))
    except UserError:  # decoding will say why
        return plain
    classes = {group: set[int]().union(*(shown[item] for item in members[group])) for group in members}
    groups_with = Counter(label for group in members for label in classes[group])
    in_several = {label for label, count in groups_with.items() if count > 1}

    def one_sided(validating: Collection[str]) -> int:
        """How many classes are on one side alone, if these groups validate."""
        sides = [set[int](), set[int]()]
        for group in members:
            sides[group in validating] |= classes[group]
        return len((sides[0] ^ sides[1]) & in_several)

    chosen, count = list[str](), _count(labelled, holdout)
    while sum(len(members[group]) for group in chosen) < count and len(chosen) < len(members) - 1:
        rest = [group for group in members if group not in chosen]
        chosen.append(min(rest, key=lambda group: one_sided([*chosen, group])))  # of equal ones, the first drawn
    now = [group for group in members if members[group][0] in plain]
    if one_sided(chosen) >= one_sided(now):
        return plain
    return tuple(sorted((item for group in chosen for item in members[group]), key=lambda item: item.name))


def _classes_in(labels: Bytes) -> set[int]:
    """The classes of a mask; a UserError where annotations claim a size that no image has."""
    if labels.size > MOST_PIXELS:
        raise UserError(f"{labels.shape[1]}×{labels.shape[0]} labels are more than an image has pixels.")
    return {*np.unique(labels).tolist()} - {IGNORE}
