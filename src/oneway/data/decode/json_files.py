"""JSON files of other tools, read and checked: what is wrong with one is said by file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError

MOST_BYTES = 2**31  # the largest in use, of LVIS, has half as many

Model = TypeVar("Model", bound=BaseModel)


def read_json(path: Path, most: int = MOST_BYTES) -> object:
    """What a file of at most so many bytes holds; a UserError says why it cannot be read."""
    try:
        return json.loads(read_bounded(path, most))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON ({error}).") from None


def read_model(path: Path, model: type[Model], most: int = MOST_BYTES) -> Model:
    """The same, as an object of which every value has been checked; a UserError names the key."""
    try:
        return model.model_validate(read_json(path, most))
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).removeprefix(".")
        message = detail["msg"].removeprefix("Value error, ")
        raise UserError(f"{path}: {key[:200]}: {message}." if key else f"{path}: {message}.") from None
