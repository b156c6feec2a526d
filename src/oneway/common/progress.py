"""How far work has come: a live bar on a terminal; elsewhere, a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from oneway.common.words import duration, say

SECONDS_BETWEEN_LINES = 10.0
BESIDE_TITLE = 48
"""Columns for what stands beside a title: the bar, counts, a result and the time left."""


class ProgressBar:
    """The progress of work with `total` parts, shown within a `with` block."""

    def __init__(self, console: Console, title: str, total: int, done: int = 0, *, transient: bool = True) -> None:
        """The bar, on a console, of which a quiet one shows nothing; `done` parts were done before.

        In a narrow window, the title is only what stands before its first " · ". A transient bar is gone at the end.
        """
        self.console, self.title, self.total = console, title, total
        self.done = done
        self.first: tuple[float, int] | None = None
        """When the first part was done, and how many were then."""
        self.details = ""
        self.last_line = time.monotonic()
        self.bar = _BarWithDetails(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[result]}", style="green", markup=False),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=transient,
            expand=True,
        )
        shown = title if len(title) + BESIDE_TITLE <= console.width else title.partition(" · ")[0]
        self.task = self.bar.add_task(shown, total=total, completed=done, result="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def advance(self) -> None:
        """One more part is done."""
        self.update(self.done + 1)

    def update(self, done: int) -> None:
        """So many parts are done."""
        self.done = done
        self.bar.update(self.task, completed=done)
        now = time.monotonic()
        if self.first is None:  # it compiles what the others only run: no measure of them
            self.first = now, done
        self._print_if_due(now)

    def within(self, details: str) -> None:
        """How far the part in work has come, where one may take hours."""
        self.show(details)
        self._print_if_due(time.monotonic())

    def _print_if_due(self, now: float) -> None:
        if not self.console.is_terminal and now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            self._print_line(*([self.details] if self.details else []), *self._speed(now))
            self.details = ""  # in the line after that, these would pass for its own

    def show(self, details: str) -> None:
        """The latest numbers, in a line below the bar; elsewhere, they are part of the next line, and of no other."""
        self.details = self.bar.details = details

    def show_result(self, brief: str, line: str) -> None:
        """A result: in brief beside the bar; elsewhere, in a line of its own."""
        self.bar.update(self.task, result=brief)
        if not self.console.is_terminal:
            self._print_line(line)

    def _speed(self, now: float) -> tuple[str, ...]:
        """Parts per second after the first, and the time that is left; nothing before there is a second part."""
        began, before = self.first or (now, self.done)
        if self.done == before:
            return ()
        seconds = (now - began) / (self.done - before)
        left = f"{duration((self.total - self.done) * seconds)} left"
        return f"{1 / seconds:.1f}/s" if seconds <= 1 else f"{seconds:.1f} s each", left

    def _print_line(self, *parts: str) -> None:
        say(self.console, "  ".join((self.title, f"{self.done}/{self.total}", *parts)))


@contextmanager
def progress_bar(console: Console, title: str, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` parts, which moves a bar."""
    with ProgressBar(console, title, total) as bar:
        yield bar.advance


class _BarWithDetails(Progress):
    """A bar with a line of text below it, cut off where the window ends."""

    details = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.details:
            yield Text(self.details, no_wrap=True, overflow="ellipsis")
