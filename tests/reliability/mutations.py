"""Values put in the place of others in a tree of JSON or YAML: of another type, out of range, missing, too many."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

HUGE = "a number beyond all others"
NESTED: Any = 1
for _ in range(50):
    NESTED = [NESTED]

VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "a half": 0.5,
    "2⁶³": 2**63,
    "10³⁰": 10**30,
    "1e308": 1e308,
    "1e400": HUGE,
    "NaN": float("nan"),
    "minus infinity": float("-inf"),
    "no text": "",
    "text": "x",
    "a number in text": "1",
    "a path": "../../etc/passwd",
    "half of a surrogate pair": "\ud800",
    "control characters": "\x00\x1b[2J\n",
    "a long text": "x" * 10_000,
    "an empty list": [],
    "an empty object": {},
    "a list of text": ["x"],
    "an object": {"x": 1},
    "nesting": NESTED,
}
NOT_FINITE = ("NaN", "minus infinity")
MOST_INSIDE = 3  # entries of a list or an object that are changed, and not only the whole
Place = tuple[str | int, ...]


def places(tree: Any, here: Place = ()) -> Iterator[Place]:
    """Every key, and the first and last entries of what is below."""
    if here:
        yield here
    if isinstance(tree, dict | list):
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        inside = keys if len(here) < 1 else [*keys[: MOST_INSIDE - 1], *keys[-1:]]
        for key in dict.fromkeys(inside):
            yield from places(tree[key], (*here, key))


def mutations(tree: Any, coerced: bool = False) -> list[tuple[str, Callable[[], Any]]]:
    """Names of mutations, and functions that give the mutated tree.

    Args:
        tree: What is mutated.
        coerced: Whether a number in place of a text is read as one: a file may well be called nan.
    """
    found: list[tuple[str, Callable[[], Any]]] = []
    for place in places(tree):
        name = ".".join(map(str, place))
        text = coerced and isinstance(_at(tree, place), str | None)
        values = {kind: value for kind, value in VALUES.items() if not (text and kind in NOT_FINITE)}
        found += [(f"{name} is {kind}", lambda p=place, v=value: _put(tree, p, v)) for kind, value in values.items()]
        found.append((f"{name} is missing", lambda p=place: _remove(tree, p)))
        if isinstance(_at(tree, place), dict | list):
            found.append((f"{name} has one more", lambda p=place: _extend(tree, p)))
    return [*found, ("nothing in it", lambda: {}), ("a list around it", lambda: [tree])]


def chosen(tree: Any, count: int, rng: random.Random, coerced: bool = False) -> list[tuple[str, Any]]:
    """Some of them, all where there are no more."""
    every = mutations(tree, coerced)
    return [(name, make()) for name, make in rng.sample(every, min(count, len(every)))]


def to_json(tree: Any, indent: int | None = 1) -> str:
    """As Python writes it, NaN and Infinity too; a number beyond what a float holds as 1e400."""
    return json.dumps(tree, indent=indent).replace(json.dumps(HUGE), "1e400")


def _at(tree: Any, place: Place) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def _changed(tree: Any, place: Place, change: Callable[[Any, Any], None]) -> Any:
    copy = deepcopy(tree)
    change(_at(copy, place[:-1]), place[-1])
    return copy


def _put(tree: Any, place: Place, value: Any) -> Any:
    return _changed(tree, place, lambda parent, key: parent.__setitem__(key, value))


def _remove(tree: Any, place: Place) -> Any:
    return _changed(tree, place, lambda parent, key: parent.__delitem__(key))


def _extend(tree: Any, place: Place) -> Any:
    def extend(parent: Any, key: Any) -> None:
        more = parent[key]
        if isinstance(more, dict):
            more["one more"] = next(iter(more.values()), 0)
        else:
            more.append(more[0] if more else 0)

    return _changed(tree, place, extend)
