"""A look at some images of a pool, since nobody looks at all of them: before a run, and for `oneway check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.streams import permuted
from oneway.common.threads import in_threads
from oneway.config import Data
from oneway.data.check.findings import errors_first
from oneway.data.check.result import Check
from oneway.data.check.rules.interface import Finding
from oneway.data.check.survey import pixel_digest
from oneway.data.pool import Pool, open_pool_beside
from oneway.data.pool.pool import FEW
from oneway.data.pool.reader import Broken

AT_THE_START, MOST_LOOKED_AT = 32, 1000
"""Images that are looked at before a run begins, and by `oneway check`."""


class Look(NamedTuple):
    """What a look at some images of a pool has shown."""

    images: int  # that were looked at
    digests: dict[str, str]  # names of images, by what `Survey` has of the same pixels
    broken: dict[str, str]  # what is wrong with those that cannot be decoded, by name
    too_many: bool  # whether so many are broken that a run would stop, or have nothing to read


def look_at(pool: Pool, most: int, advance: Callable[[], None] = lambda: None) -> Look:
    """Decode some images of a pool, the same ones every time."""
    chosen = permuted(0, "a look at a pool", 0, len(pool), range(min(most, len(pool)))).tolist()
    digests: dict[str, str] = {}
    broken: dict[str, str] = {}

    def decode(image: int) -> tuple[str, str, str]:
        try:
            return pool.name(image), pixel_digest(pool.decode(image).pixels), ""
        except Broken as error:
            return pool.name(image), "", str(error)

    for name, digest, problem in in_threads(decode, chosen, pool.workers):
        if problem:
            broken[name] = problem
        else:
            digests[digest] = name
        advance()
    count = len(broken)
    too_many = count > max(FEW, pool.most_broken * len(chosen)) or 0 < count == len(chosen)
    return Look(len(chosen), digests, broken, too_many)


def refuse_broken(pool: Pool) -> None:
    """Raise a UserError where what can be seen of a pool at once is mostly unreadable."""
    look = look_at(pool, AT_THE_START)
    if look.too_many:
        raise UserError(
            f"{pool.source.name}: {len(look.broken)} of {look.images} images of the pool that were looked at cannot "
            f"be decoded. {next(iter(look.broken.values()))}"
        )


def check_pool(check: Check, named: Path | str, console: Console) -> tuple[Check, dict[str, Any]]:
    """What a look at a pool adds to a check of the data set beside it, and its numbers for machines."""
    listing = check.listing
    pool = open_pool_beside(listing, Data(unlabelled=named), console)
    with progress_bar(console, "Looking at the pool", min(MOST_LOOKED_AT, len(pool))) as advance:
        look = look_at(pool, MOST_LOOKED_AT, advance)
    broken = f", of which {len(look.broken):,} cannot be read" if look.broken else ""
    remark = f"A pool of {len(pool):,} images ({named}), {look.images:,} of them looked at{broken}."
    found = errors_first([*check.findings, *_findings(check, look)])
    seen = replace(listing, remarks=(*listing.remarks, remark), unlabelled=named)
    numbers = {"images": len(pool), "looked_at": look.images, "broken": len(look.broken)}
    return replace(check, listing=seen, findings=tuple(found)), {**numbers, "digest": pool.record.digest}


def _findings(check: Check, look: Look) -> Iterator[Finding]:
    for name, problem in look.broken.items():
        message = problem.removeprefix(f"{name}: ")
        if look.too_many:
            yield Finding("error", "Too many images of the pool that cannot be read", name, message)
        else:
            yield Finding("warning", "Images of the pool that cannot be read: others take their places", name, message)
    for item in check.listing.val:
        survey = check.surveys.get(item.name)
        if survey is not None and survey.digest in look.digests:
            message = f"the pool has it too, as {look.digests[survey.digest]}"
            yield Finding("warning", "Validation images that are in the pool", item.name, message)
