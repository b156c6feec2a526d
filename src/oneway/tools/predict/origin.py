"""What results were made from, noted in the results themselves: --resume keeps those that would be the same again.

Each mask and each video says so for itself. So it holds of all of them, whenever a process was killed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from oneway.data.decode.georeference import companions
from oneway.data.decode.video import require_video
from oneway.data.pictures import HEAD, ORIGIN
from oneway.tools.predict.sources import Source

NOTED = re.compile(rb"tEXt" + ORIGIN.encode() + rb"\0([0-9a-f]{32})")


def maker_of(model: Path, settings: Mapping[str, Any]) -> str:
    """A text that is another for another model or other settings; empty where the model's file is gone by now."""
    try:
        return json.dumps([_state(model), settings])
    except OSError:
        return ""


def origin_of(source: Source, maker: str) -> str:
    """A digest of a file, of what lies beside it and of the maker of its results; empty where one is unknown."""
    if not maker:
        return ""
    try:
        files = [_state(path) for path in (source.path, *companions(source.path))]
    except OSError:  # it is said when it is read
        return ""
    return blake2b(json.dumps([maker, files]).encode(), digest_size=16).hexdigest()


def _state(path: Path) -> tuple[str, int, int]:
    status = path.stat()
    return str(path.resolve()), status.st_size, status.st_mtime_ns


def origin_in(result: Path) -> str:
    """The origin that a mask or a video of ours notes; none where it was edited, or cannot be read."""
    if result.suffix == ".png":
        with suppress(OSError), result.open("rb") as file:
            found = NOTED.search(file.read(HEAD))
            return found[1].decode() if found else ""
        return ""
    av = require_video()
    with suppress(av.FFmpegError, OSError), av.open(str(result)) as container:
        return str(container.metadata.get("comment", ""))
    return ""
