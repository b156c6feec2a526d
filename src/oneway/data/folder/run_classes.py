"""Which classes of a run the labels of another folder mean: by their names, or by what masks hold for them."""

from __future__ import annotations

from oneway.common.words import listed
from oneway.data.dataset import Known
from oneway.data.folder.classes import Classes, Value, by_own_numbers, is_placeholder


def by_values(found: Classes, known: Known) -> Classes | None:
    """The run's classes for masks whose values nothing names; None where these hold any value that the run's do not."""
    classes = None if found.coloured else by_own_numbers(known.classes)
    if known.masks is not None:  # else it is of an earlier version, or was taught by annotations
        classes = Classes(known.classes, known.masks.table(found.coloured))
    if classes is None or {*classes.table.values()} != {*range(len(classes.names))}:  # as where two have one colour
        return None
    return classes if classes.table.keys() >= found.table.keys() else None


def by_names(found: Classes, known: Known) -> Classes | None:
    """The run's classes for masks that show some of them, or all in another order; None where names are others.

    Names that nobody gave, such as `class 3`, are no names.
    """
    others = not {*found.names} <= {*known.classes} or any(map(is_placeholder, found.names))
    if others or found.names == known.classes:
        return None
    return Classes(known.classes, {value: known.classes.index(found.names[at]) for value, at in found.table.items()})


def how_read(found: Classes, classes: Classes) -> str:
    """Which values that nothing names are read as which classes of a run; empty where their names would be the same."""
    if {*found.names} <= {*classes.names}:
        return ""
    pairs = [f"{_shown(value)} as {classes.names[classes.table[value]]}" for value in found.table]
    return f"nothing names the classes there: masks are read as those of the run, {listed(pairs, 4)}"


def _shown(value: Value) -> str:
    return str(list(value) if isinstance(value, tuple) else value)
