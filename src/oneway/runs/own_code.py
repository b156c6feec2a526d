"""Digests of code of the user's own: a run folder names its method and its network, and does not hold their code."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from oneway.config import Config
from oneway.methods import METHODS


def own_code(config: Config) -> dict[str, str]:
    """Digests of the files in which a run's own method and its network are written, by the names of the files.

    What has no file, as in a notebook, has the digest of its own lines. A network is left out before it is imported.
    """
    method, factory = METHODS[config.method], config.model.factory
    module = None if factory is None else sys.modules.get(factory.partition(":")[0])
    parts = [part for part in (method.losses, method.head, module) if part is not None and not isinstance(part, str)]
    return dict(found for part in parts if (found := _digest(part)) is not None)


def _digest(part: Callable[..., Any] | ModuleType) -> tuple[str, str] | None:
    while isinstance(part, partial):
        part = part.func
    try:
        file = Path(inspect.getsourcefile(part) or "")
        if file.is_file():
            name, content = file.name, file.read_bytes()
        else:
            name, content = part.__name__, inspect.getsource(part).encode()
    except (OSError, TypeError):  # it has no source, as what a program was compiled from
        return None
    return name, hashlib.sha256(content).hexdigest()[:12]
