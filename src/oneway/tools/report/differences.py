"""Differences of scores, as they are printed: a reader will subtract."""

from __future__ import annotations

from oneway.tools.intervals import Interval

MINUS = "−"


def shown_gain(before: float, after: float) -> float:
    """The difference of two values as they are printed, to a tenth."""
    return round(round(after, 1) - round(before, 1), 1) + 0.0  # which makes −0 a 0


def signed(points: float) -> str:
    """A difference with its sign, to a tenth."""
    rounded = round(points, 1)
    return f"{MINUS if rounded < 0 else '+' if rounded > 0 else '±'}{abs(rounded):.1f}"


def with_other_images(difference: Interval | None) -> str:
    """How far the difference of two runs hangs on the images that validate; nothing where that is not known."""
    if difference is None:
        return ""
    low, high = difference
    close = ": too close to call" if low <= 0 <= high else ""
    return (
        f"With other validation images like these, the difference would lie between {signed(low)} and {signed(high)} "
        f"(95\N{NO-BREAK SPACE}% interval){close}."
    )
