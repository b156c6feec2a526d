"""What may well be wrong with the files of a data set as a whole: each a warning, with the line that decides it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import PurePosixPath

from oneway.common.words import counted, listed
from oneway.data.dataset import Item
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found
from oneway.data.folder.groups import FOLDER, group_of
from oneway.data.folder.inferred import as_one_class
from oneway.data.folder.palettes import conflict_with
from oneway.data.folder.yaml_text import to_flow

SEVERAL = 3  # folders from which on, each with two labelled images or more, they may be patients, places or videos
LONG = 6  # letters from which on names that are one letter apart are rarely two words; COCO-Stuff has no such pair
NUMBERED_WITHIN = re.compile(r".*\d\D*?([-_. ]\D*)\d+")  # in parentheses, what stands before the last number
SHOWN = 8  # names or numbers that a message lists

Doubts = Iterator[tuple[str, str]]
"""Each by its heading."""


def doubts(found: Found, held_out: Sequence[Item] = (), classes: Sequence[str] = ()) -> Doubts:
    """All of them; `held_out` are images that validate for want of a validation set."""
    yield from _divided_groups(found, held_out)
    yield from _spellings(found, classes)
    yield from _misspelt(found, classes)
    yield from _strays(found)
    yield from _objects(found)
    yield from _palettes(found)
    yield from _bare(found)
    yield from _taken_for_background(found)


def _divided_groups(found: Found, held_out: Sequence[Item]) -> Doubts:
    """Images that may belong together, by their folders or else by their names, and are on both sides."""
    labelled = [item.name for item in found.train if item.labelled]
    for what, pattern in (("folders", FOLDER), ("names", _numbered_within(labelled))):
        if found.description.groups is not None or pattern is None:
            continue
        members = Counter(group_of(name, pattern) for name in labelled)
        held = Counter(group_of(item.name, pattern) for item in held_out)
        divided = [name for name, count in members.items() if 0 < held[name] < count]
        if divided and sum(count > 1 for count in members.values()) >= SEVERAL:
            groups = what if pattern == FOLDER else "groups of them"
            yield (
                f"{what.capitalize()} that both train and validate",
                f"{len(divided)} of {len(members)} {groups} ({divided[0]} is the first): where each is a patient, "
                f"place or video, scores will be too high. To hold out whole {groups.split()[0]}, write "
                f"`groups: {to_flow(pattern)}` into {FILE}",
            )
            return


def _numbered_within(names: Sequence[str]) -> str | None:
    """The pattern of names such as `P01_slice03`, if all have the same: that of a number behind one with a number."""
    found = [NUMBERED_WITHIN.fullmatch(PurePosixPath(name).stem) for name in names]
    joints = {parts[1] if parts else "" for parts in found}
    joint = joints.pop() if len(joints) == 1 else ""
    return f"(*){joint}*" if joint and joint.isascii() and not {*joint} & {*"()*"} else None


def _spellings(found: Found, classes: Sequence[str]) -> Doubts:
    """Names in annotations that differ in upper and lower case alone, and are different classes."""
    if not found.annotations or found.description.names:
        return
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        spellings[name.casefold()].append(name)
    if several := [listed(map(repr, names)) for names in spellings.values() if len(names) > 1]:
        line = to_flow([names[-1] for names in spellings.values()])
        yield (
            "Classes whose names differ in upper and lower case alone",
            f"{'; '.join(several[:SHOWN])} are different classes. If they are not meant to be, correct the labels, or "
            f"write the spelling that all shall have into {FILE}: `classes: {line}`",
        )


def _misspelt(found: Found, classes: Sequence[str]) -> Doubts:
    """Names in annotations that are a letter apart, and are different classes."""
    if not found.annotations or found.description.names:
        return
    if pairs := [pair for pair in combinations(classes, 2) if _a_letter_apart(*pair)]:
        shown, (right, wrong) = [f"{one!r} and {other!r}" for one, other in pairs[:SHOWN]], pairs[0]
        yield (
            "Classes whose names are a letter apart",
            f"{'; '.join(shown)} are different classes. If one is misspelt, correct the labels, or write the right one "
            f"with the other behind it into {FILE}: `merge: {to_flow({right: [wrong]})}`",
        )


def _a_letter_apart(one: str, other: str) -> bool:
    """Whether long names differ by a letter, added or exchanged; not by their last, as those of kinds a and b do."""
    short, long = sorted((one.casefold(), other.casefold()), key=len)
    if len(short) < LONG or short == long or len(long) - len(short) > 1:
        return False
    letters = [place for place, character in enumerate(long) if character.isalpha()]
    if len(short) < len(long):
        return any(short == _without(long, place) for place in letters)
    inner = (place for place in letters if place < len(long) - 1 and short[place].isalpha())
    return any(_without(short, place) == _without(long, place) for place in inner)


def _without(name: str, place: int) -> str:
    return name[:place] + name[place + 1 :]


def _strays(found: Found) -> Doubts:
    """Numbers that were taken for classes, and hardly occur."""
    if found.inferred and (strays := found.inferred.strays):
        shown = listed((f"{value} ({path})" for value, path in strays.items()), SHOWN)
        they = "it stands" if len(strays) == 1 else "they stand"
        line = to_flow([*strays, *(found.description.ignore or ())])
        yield (
            "Numbers that hardly occur, in a single mask",
            f"{shown}: if {they} for no class, correct the mask, or write `ignore: {line}` into {FILE}",
        )


def _objects(found: Found) -> Doubts:
    """Numbers that were taken for classes, and may be those of objects."""
    if found.inferred and found.inferred.objects:
        yield (
            "Numbers that may be those of objects",
            "some masks hold more of them than others, each in one piece, and nearly all masks count up from 1: if "
            f"they number objects of one class, write `{as_one_class()}` into {FILE}",
        )


def _palettes(found: Found) -> Doubts:
    """Indices that are classes since a description says so, and are shown in other colours in other masks."""
    classes = found.description.classes
    if found.inferred or found.annotations or classes is None or classes.coloured:
        return
    if conflict := conflict_with(classes, [item.mask for item in (*found.train, *found.val) if item.mask]):
        yield (
            "Palettes that differ from mask to mask",
            f"{conflict}, and {FILE} says that indices are the classes. If colours are, give each class its colour",
        )


def _bare(found: Found) -> Doubts:
    """Images that annotations list, and on which nothing is annotated."""
    if found.bare:
        images = sum(len(one.files) for one in found.annotations)
        count = f"on {len(found.bare)} of {images} listed images nothing is annotated ({found.bare[0]} is the first)"
        if found.description.unannotated == "background":
            yield "Images without annotations", f"{count}: they are background all over, as {FILE} says"
        else:
            train = {item.name for item in found.train}
            apart = sum(name not in train for name in found.bare)
            judge = f", and {apart} of them cannot validate, so that false alarms there do not count" if apart else ""
            way_out = f"if they show nothing but background, write `unannotated: background` into {FILE}"
            yield "Images without annotations", f"{count}: they train without labels{judge}; {way_out}"


def _taken_for_background(found: Found) -> Doubts:
    """Folders that are said to show background alone, and hold images with labels too."""
    for folder in found.description.background:
        inside = [
            item for item in (*found.train, *found.val, *found.test) if PurePosixPath(item.name).is_relative_to(folder)
        ]
        drawn = sum(item.mask is not None for item in inside)
        if drawn:
            yield (
                "Folders of background that hold labels too",
                f"in {folder}, {counted(drawn, 'image')} {'has' if drawn == 1 else 'have'} labels, and the other "
                f"{len(inside) - drawn} are taken for background all over, as {FILE} says: if not all of these show "
                "nothing else, move those that do into a folder of their own, and name that",
            )
