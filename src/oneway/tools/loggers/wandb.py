"""Weights & Biases: online where there is a login and a server that answers, else in files that `wandb sync` sends.

A step of W&B is a line of the log, and the iteration an axis of its own: a server that has had some of the lines of a
continued run says how many.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb
from PIL import Image

from oneway.tools.loggers.interface import About, Point

SECONDS_FOR_SERVER = 15.0


class Service:
    """A run of W&B, the same for as long as the run folder exists."""

    def __init__(self, about: About, tell: Callable[[str], None]) -> None:
        folder = about.folder_of("wandb")
        known = folder / "oneway-id"
        if not known.exists():
            known.write_text(secrets.token_hex(4), encoding="ascii")
        identity = known.read_text(encoding="ascii").strip()
        start: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", "oneway"),
            "id": identity,
            "name": about.name,
            "dir": str(about.folder),
            "config": dict(about.config),
            "settings": wandb.Settings(
                silent=True, console="off", x_disable_stats=True, init_timeout=SECONDS_FOR_SERVER
            ),
        }
        mode: Any = os.environ.get("WANDB_MODE", "online")
        reason = "" if mode != "online" or wandb.login(prompt=False, verify=False) else "there is no login"
        if not reason and mode == "online":
            try:
                self.run = wandb.init(**start, resume="allow")
            except wandb.errors.CommError:
                reason = "its server does not answer"
                wandb.teardown()  # or it would have the run twice
        if reason or mode != "online":
            for earlier in folder.glob(f"offline-run-*-{identity}"):  # what it holds comes from the log, as will this
                shutil.rmtree(earlier)
            self.run = wandb.init(**start, mode="offline" if reason else mode)
        if reason:
            files = Path(self.run.dir).parent
            tell(f"Weights & Biases: {reason}; the curves are kept in files. To send them: wandb sync {files}")
        self.taken = self.run.step
        self.run.define_metric("iteration", hidden=True)
        self.run.define_metric("*", step_metric="iteration")

    def log(self, points: Sequence[Point]) -> None:
        """Send the points that the server has not."""
        for point in points:
            if point.number >= self.taken:
                pictures = {
                    name: wandb.Image(Image.open(io.BytesIO(content))) for name, content in point.pictures.items()
                }
                values = {"iteration": point.iteration, **point.values, **pictures}
                self.run.log(values, step=point.number, commit=True)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """End the run with its summary, or as one that may be continued."""
        if summary is not None:
            self.run.summary.update({key: value for key, value in summary.items() if not isinstance(value, list)})
        self.run.finish(exit_code=0 if summary is not None else 1)
