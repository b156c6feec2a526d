"""A look at some images of a pool: nobody looks at all of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from oneway.common.errors import UserError
from oneway.common.streams import permuted
from oneway.data.check.survey import pixel_digest
from oneway.data.pool.pool import FEW, Pool
from oneway.data.pool.reader import Broken

AT_THE_START = 32
"""Images that are looked at before a run begins."""


@dataclass(frozen=True)
class Look:
    """What was seen."""

    images: int  # in the pool
    looked_at: int
    sizes: dict[tuple[int, int], int]  # how many have which height and width
    digests: dict[str, str]  # names of images, by what `Survey` has of the same pixels
    broken: dict[str, str]  # what is wrong with those that cannot be decoded, by name


def look_at(pool: Pool, most: int, advance: Callable[[], None] = lambda: None) -> Look:
    """Decodes some images of a pool, the same ones every time."""
    chosen = permuted(0, "a look at a pool", 0, len(pool), range(min(most, len(pool)))).tolist()
    look = Look(len(pool), len(chosen), {}, {}, {})

    def decode(image: int) -> tuple[str, tuple[int, int] | None, str]:
        try:
            part = pool.decode(image)
        except Broken as error:
            return pool.name(image), None, str(error)
        return pool.name(image), part.size, pixel_digest(part.pixels)

    with ThreadPoolExecutor(pool.workers) as threads:
        try:
            for name, size, text in threads.map(decode, chosen):
                if size is None:
                    look.broken[name] = text
                else:
                    look.sizes[size] = look.sizes.get(size, 0) + 1
                    look.digests[text] = name
                advance()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return look


def too_many_broken(pool: Pool, look: Look) -> bool:
    """Whether a run would stop, or have nothing to read."""
    broken = len(look.broken)
    return broken > max(FEW, pool.most_broken * look.looked_at) or 0 < broken == look.looked_at


def refuse_broken(pool: Pool) -> None:
    """Raises a UserError where what can be seen of a pool at once is mostly unreadable."""
    look = look_at(pool, AT_THE_START)
    if too_many_broken(pool, look):
        raise UserError(
            f"{pool.source.name}: {len(look.broken)} of {look.looked_at} images of the pool that were looked at cannot "
            f"be decoded. {next(iter(look.broken.values()))}"
        )
