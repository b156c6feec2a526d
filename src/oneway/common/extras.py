"""Optional packages, imported when they are needed; where one is missing, an error has the command to install it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oneway.common.errors import UserError

NO_REPORTS = {"ORT_DISABLE_TELEMETRY": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
"""Variables with which ONNX Runtime, MLflow and W&B do not report their use, or their errors, to their makers."""

OPENVINO_REPORTS = "openvino_telemetry"


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import a module that comes with an extra of this package; a UserError has the command that installs it."""
    try:
        with unreported():
            return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{purpose} needs {module} ({error}). Install it with: pip install 'oneway[{extra}]'") from None


@contextmanager
def unreported() -> Iterator[None]:
    """What is imported in the block tells its makers nothing, unless the user has set its variable otherwise.

    OpenVINO has no such variable, and reports that it was imported; without its package for that, it does not.
    """
    for variable, off in NO_REPORTS.items():
        os.environ.setdefault(variable, off)
    hidden = OPENVINO_REPORTS not in sys.modules
    if hidden:
        sys.modules[OPENVINO_REPORTS] = None  # type: ignore[assignment]  # Python then takes it for missing
    try:
        yield
    finally:
        if hidden:
            del sys.modules[OPENVINO_REPORTS]
