"""Decoded images that are not what was decoded, and what becomes of a run that reads them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from data.decoded import cache_folder, same, train, write_set
from oneway.common.errors import UserError
from reliability.guards import FOLDER, write_data
from reliability.harness import done
from reliability.harness import same as same_run

ALTERED = {
    "training pixels": ("train/pixels", 7, {}),
    "training labels beyond the classes": ("train/labels", 77, {}),
    "training pixels, streamed": ("train/pixels", 7, {"streamed": True}),
    "training labels beyond the classes, streamed": ("train/labels", 77, {"streamed": True}),
    "validation pixels": ("val/pixels", 7, {}),
    "validation labels": ("val/labels", 1, {}),
}
"""A file of the cache, the value that some of it gets, and how a run reads it."""

STRANGE: tuple[Any, ...] = (None, True, -1, 0, 3, 2**40, 1e300, "", "x", "\x1b[2J", [], [0], [[]], {}, {"a": 1})


def altered_cache_changes_nothing(folder: Path, what: str) -> bool:
    """A run on a cache in which some bytes are others says so, and ends like one on a cache that is in order."""
    name, value, how = ALTERED[what]
    write_data(folder)
    done(folder, *FOLDER, **how)
    (folder / "run").rename(folder / "whole")
    (file,) = folder.glob(f"cache/*/{name}")
    before = file.read_bytes()
    overwrite(file, len(before) // 3, bytes([value]) * 100)
    job = done(folder, *FOLDER, **how)
    said = f"{file.relative_to(folder)} is damaged at images/" in job.output and job.output.count("is damaged") == 1
    return said and same_run(folder / "run", folder / "whole") and file.read_bytes() == before


def overwrite(file: Path, place: int, content: bytes) -> None:
    """Writes into the middle of a file, as a failing disk or a careless program would."""
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(content)


def malformed_indexes(folder: Path, count: int, seed: int) -> list[str]:
    """What went wrong with indexes in which something is strange, with a digest that matches: none is believed.

    All of them are valid JSON, and are read as a training set would be, with the same result as before.
    """
    root = write_set(folder / "photos")
    kept, file = train(root), cache_folder(root) / "train" / "index.json"
    pixels, labels, content = kept.pixels[:], kept.labels[:], file.read_bytes()
    tree = json.loads(content)
    del tree["seal"]
    chosen = random.Random(seed).sample([*_changes(tree)], count)
    wrong = []
    for name, change in chosen:
        file.write_bytes(sealed(change(copy.deepcopy(tree))))
        try:
            found = train(root)
            if not (same(found, kept) and (found.pixels[:] == pixels).all() and (found.labels[:] == labels).all()):
                wrong.append(f"{name}: other samples")
        except UserError as error:  # of files that are not what the index says, or decoded to something else
            again = "decoding it again gives others" in str(error) and same(train(root), kept)
            if not again and "not as it was when it was decoded" not in str(error):
                wrong.append(f"{name}: {error}")
            file.write_bytes(content)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
            file.write_bytes(content)
    return wrong


def sealed(tree: object) -> bytes:
    """An index with its digest."""
    start = json.dumps(tree).encode()[:-1]
    return start + b', "seal": "' + blake2b(start, digest_size=16).hexdigest().encode() + b'"}'


def _changes(tree: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Every value of a tree, replaced by every strange one; every key removed."""
    for place in _places(tree):
        if place and place[-1] == "path":
            continue  # another path is another file, and that is said
        for strange in STRANGE:
            yield f"{place} = {strange!r}", lambda whole, place=place, strange=strange: _put(whole, place, strange)
        if place and isinstance(place[-1], str):
            yield f"without {place}", lambda whole, place=place: _remove(whole, place)


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from _places(child, (*place, key))


def _put(whole: Any, place: tuple[Any, ...], value: Any) -> Any:
    _parent(whole, place)[place[-1]] = value
    return whole


def _remove(whole: Any, place: tuple[Any, ...]) -> Any:
    del _parent(whole, place)[place[-1]]
    return whole


def _parent(whole: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        whole = whole[key]
    return whole


def flips(folder: Path, count: int, seed: int) -> list[str]:
    """Flipped bits in pixels, labels and index of which a reader notices nothing, or gets anything wrong."""
    root = write_set(folder / "photos")
    kept = train(root)
    pixels, labels = kept.pixels[:], kept.labels[:]
    rng, wrong = random.Random(seed), []
    for _ in range(count):
        file = cache_folder(root) / "train" / rng.choice(["pixels", "labels", "index.json"])
        content = file.read_bytes()
        place = rng.randrange(len(content))
        overwrite(file, place, bytes([content[place] ^ 1 << rng.randrange(8)]))
        found = train(root)
        if not ((found.pixels[:] == pixels).all() and (found.labels[:] == labels).all()):
            wrong.append(f"byte {place} of {file.name}: other values")
        elif file.name != "index.json" and file.read_bytes() != content:
            wrong.append(f"byte {place} of {file.name}: still there")
    return wrong
