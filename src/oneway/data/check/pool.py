"""Checks a pool of images without labels by a look at some of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.common.progress import progress_bar
from oneway.config import Data
from oneway.data.check.defects import Finding
from oneway.data.check.findings import errors_first
from oneway.data.check.result import Check
from oneway.data.pool import Pool, open_pool_beside
from oneway.data.pool.sampling import Look, look_at, too_many_broken

MOST_LOOKED_AT = 1000


def check_pool(check: Check, named: Path | str, console: Console) -> tuple[Check, dict[str, Any]]:
    """What a look at a pool adds to a check of the data set beside it, and its numbers for machines.

    Args:
        check: Of the data set.
        named: The pool.
        console: Where to show progress.
    """
    listing = check.listing
    pool = open_pool_beside(listing, Data(unlabelled=named), console)
    with progress_bar(console, "Looking at the pool", min(MOST_LOOKED_AT, len(pool))) as advance:
        look = look_at(pool, MOST_LOOKED_AT, advance)
    broken = f", of which {len(look.broken):,} cannot be read" if look.broken else ""
    remark = f"A pool of {look.images:,} images ({named}), {look.looked_at:,} of them looked at{broken}."
    found = errors_first([*check.findings, *_findings(check, pool, look)])
    seen = replace(listing, remarks=(*listing.remarks, remark), unlabelled=named)
    numbers = {"images": look.images, "looked_at": look.looked_at, "broken": len(look.broken)}
    return replace(check, listing=seen, findings=tuple(found)), {**numbers, "digest": pool.record.digest}


def _findings(check: Check, pool: Pool, look: Look) -> Iterator[Finding]:
    fatal = too_many_broken(pool, look)
    for name, problem in look.broken.items():
        message = problem.removeprefix(f"{name}: ")
        if fatal:
            yield Finding("error", "Too many images of the pool that cannot be read", name, message)
        else:
            yield Finding("warning", "Images of the pool that cannot be read: others take their places", name, message)
    for item in check.listing.val:
        survey = check.surveys.get(item.name)
        if survey is not None and survey.digest in look.digests:
            message = f"the pool has it too, as {look.digests[survey.digest]}"
            yield Finding("warning", "Validation images that are in the pool", item.name, message)
