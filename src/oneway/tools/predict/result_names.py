"""Under which names results are kept: as short as can be, and no two the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path


def shortest_names(found: Mapping[Path, tuple[Path, Path]]) -> list[tuple[str, str]]:
    """A name and a file name for each path, by a folder and its path below that.

    They are as short as can be and still differ; names differ in more than upper and lower case.
    """
    choices = [_choices(path, *place) for path, place in found.items()]
    length = [0] * len(choices)
    while True:
        names = [forms[at] for forms, at in zip(choices, length, strict=True)]
        files = [forms[max(at, 1)] for forms, at in zip(choices, length, strict=True)]
        clashing = _repeated([name.casefold() for name in names])
        longer = [at for at in {*clashing, *_repeated(files)} if length[at] < len(choices[at]) - 1]
        if not longer:
            # What differs in nothing but case gets a number behind it.
            numbered = [f"{name}-{clashing.index(at) + 1}" if at in clashing else name for at, name in enumerate(names)]
            return list(zip(numbered, files, strict=True))
        for at in longer:
            length[at] += 1


def _repeated(names: Sequence[str]) -> list[int]:
    """The places of names that occur more than once."""
    count = Counter(names)
    return [at for at, name in enumerate(names) if count[name] > 1]


def _choices(path: Path, root: Path, relative: Path) -> tuple[str, ...]:
    """Names of one source, the shortest first."""
    forms = (relative.with_suffix(""), relative, root.resolve().name / relative, path.relative_to(path.anchor))
    return tuple(form.as_posix() for form in forms)
