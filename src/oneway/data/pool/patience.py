"""Requests that are made again: what comes from elsewhere may come late, damaged or not at all."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from oneway.common.errors import UserError

TIMEOUT = 15.0
"""Seconds without a byte after which a request is made anew."""

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0)
"""Seconds before each further attempt: a server may be away for a minute or so."""

SYSTEM = random.SystemRandom()  # which takes nothing from a generator that somebody has seeded
Result = TypeVar("Result")


class Again(Exception):
    """A failure that may pass: the request is made again."""


def patiently(path: str, ask: Callable[[], Result], closed: threading.Event) -> Result:
    """The result of a request, which is made again after failures that may pass; a UserError after the last attempt."""
    began = time.monotonic()
    for pause in (*PAUSES, None):
        try:
            return ask()
        except UserError:
            raise
        except (Again, OSError, http.client.HTTPException) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            # Threads that were refused together must not come back together.
            if pause is None or closed.wait(pause * SYSTEM.uniform(0.5, 1.5)):
                break
    waited = time.monotonic() - began
    raise UserError(f"{path}: cannot be read ({reason}), in {len(PAUSES) + 1} attempts over {waited:.0f} s.")
