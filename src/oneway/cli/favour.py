"""`--favour CLASS=FACTOR`, of every verb that chooses classes."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from oneway.cli.app import Several
from oneway.common.errors import UserError

Favour = Annotated[Several, Parameter(name="--favour")]


def factors_of(favour: tuple[str, ...]) -> dict[str, float]:
    """The factor of each class."""
    found: dict[str, float] = {}
    for given in favour:
        name, _, factor = given.rpartition("=")
        try:
            if not name or name in found:
                raise ValueError
            found[name] = float(factor)
        except ValueError:
            raise UserError(f"--favour {given}: give each class once, with its factor: --favour CLASS=3") from None
    return found
