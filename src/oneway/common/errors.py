"""The error for what a user can correct."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from oneway.common.words import visible


class UserError(Exception):
    """Something the user can correct: what is wrong, with the value, and the way out. Printed without a traceback."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for an unknown name: suggests the nearest known one, and lists all of them."""
    known = list(known)
    near = get_close_matches(name, known, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    return UserError(f"Unknown {kind} '{visible(name[:200], lines=False)}'.{suggestion} Known: {', '.join(known)}.")
