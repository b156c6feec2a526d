"""The one error a user can mend."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can mend: says what is wrong, with the value, and the way out. Printed without a traceback."""


def some(names: Iterable[str], most: int = 3) -> str:
    """The first few of many names: `a, b, c and 4 more`."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The answer to a name nobody knows: the nearest known one, and all of them."""
    known = list(known)
    near = get_close_matches(name, known, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    return UserError(f"Unknown {kind} '{name}'.{suggestion} Known: {', '.join(known)}.")
