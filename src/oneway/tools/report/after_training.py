"""What is said where the report of runs that have just been trained cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.words import command


@contextmanager
def after_training(trained: Path) -> Iterator[None]:
    """An error in the block also says that the run, or the folder of two that were compared, is complete without it."""
    try:
        yield
    except UserError as error:
        again = command("oneway", "report", trained)
        raise UserError(
            f"{error}\n{trained} is complete; only its report is missing, which this writes: {again}"
        ) from error
