"""What a person sees while a run trains: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from oneway.common.words import duration
from oneway.tools.evaluate import METRIC_NAMES

SECONDS_BETWEEN_LINES = 10.0
WIDE = 130
"""Columns of a terminal that has room for the losses beside the bar."""

NARROW_BAR = 16


class Narrator:
    """Tells how one run is going."""

    def __init__(self, console: Console, title: str, start: int, total: int) -> None:
        self.console = console
        self.title = title
        self.start = start
        self.total = total
        self.score = ""
        self.began = self.last_line = time.monotonic()
        wide = console.width >= WIDE
        losses = "{task.fields[losses]}" if wide else ""
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None if wide else NARROW_BAR),
            MofNCompleteColumn(),
            TextColumn(losses + "[green]{task.fields[score]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            expand=wide,
        )
        shown = title if wide else title.partition(" · ")[0]
        self.task = self.bar.add_task(shown, total=total, completed=start, losses="", score="")

    def advanced(self, iteration: int) -> None:
        """An iteration is done."""
        self.bar.update(self.task, completed=iteration)

    def measured(self, iteration: int, losses: dict[str, float], rate: float) -> None:
        """Losses were read back."""
        text = "  ".join(f"{name} {value:.3f}" for name, value in losses.items())
        self.bar.update(self.task, losses=f"{text}  lr {rate:.1e}  ")
        now = time.monotonic()
        if not self.console.is_terminal and now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            per_second = (iteration - self.start) / (now - self.began)
            left = (self.total - iteration) / per_second
            speed = f"{per_second:.1f} it/s  {duration(left)} left"
            self._line(f"{iteration}/{self.total}  {text}  lr {rate:.1e}  {speed}")

    def validated(self, iteration: int, metric: str, value: float) -> None:
        """The model was validated."""
        self.bar.update(self.task, score=f"val {value:.1f} % ")
        if not self.console.is_terminal:
            self._line(f"{iteration}/{self.total}  validation {METRIC_NAMES[metric]} {value:.1f} %")

    def _line(self, text: str) -> None:
        self.console.print(f"{self.title}  {text}", highlight=False, soft_wrap=True)


@contextmanager
def narrated(console: Console, title: str, start: int, total: int) -> Iterator[Narrator]:
    """A narrator whose bar is on the screen while the block runs."""
    narrator = Narrator(console, title, start, total)
    with narrator.bar:
        yield narrator
