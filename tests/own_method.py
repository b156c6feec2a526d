"""The method that the documentation writes, with what it may remember and a loss of its own making."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oneway import ops
from oneway.methods import METHODS, Method
from oneway.methods.interface import Loss

PAGE = Path(__file__).parent.parent / "docs" / "add-a-method.md"


def codes() -> list[str]:
    """The page's pieces of Python: a file, and what may be added to it."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def remembering() -> Method:
    """As the page says: labels have to exceed a threshold that follows the teacher; and a mean over a share."""
    found: dict[str, Any] = {"__name__": "two_views"}
    whole, _, module, _ = codes()
    with patch.dict(METHODS):  # to which the file adds its own
        exec(whole.replace("certainty > settings.confidence", "certainty > models.heads[0].follow(certainty)"), found)
    exec(module, found)

    def losses(models: Any, batch: Any, settings: Any) -> Iterator[Loss]:
        yield from found["two_views"](models, batch, settings)
        yield Loss("size", ops.divided(models.student(batch.unlabelled()).square().mean()), 0.01)

    return Method(losses, perturb=("phtps", "cutmix"), teacher="mean", views=2, head=found["Threshold"])
