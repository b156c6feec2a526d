"""Consoles: control characters in text are never obeyed, and a closed or full output ends no run."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, TextIO

import rich.console
from rich.segment import Segment
from rich.text import Text

from oneway.common.errors import UserError
from oneway.common.words import visible

PLAIN = "oneway-plain"
"""The name of the error handler that writes what an encoding lacks in characters that it has."""

LONGEST_LINE = 100_000

SUBSTITUTES = {
    **dict.fromkeys("·–—−", "-"),
    **dict.fromkeys("✓■█▏▎▍▌▋▊▉", "#"),
    **{"→": "->", "×": "x", "✗": "x", "²": "2", "…": "...", "α": "alpha", "ε": "epsilon", "±": "+-", "≤": "<="},
}


def _substitute(error: UnicodeError) -> tuple[str, int]:
    """What replaces characters that cannot be encoded: the nearest that can, or else their numbers."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    written = (SUBSTITUTES.get(c) or visible(c).encode("ascii", "backslashreplace").decode() for c in lacking)
    return "".join(written), error.end


codecs.register_error(PLAIN, _substitute)


class Output:
    """A standard stream, whatever `sys` has it be at the time.

    What its encoding lacks is written in plain characters. Where it cannot be written to (its reader has gone, its disk
    is full, it is closed), text is dropped; of a result, that is an error.
    """

    def __init__(self, name: Literal["stdout", "stderr"], result: bool) -> None:
        self.name, self.result = name, result

    @property
    def stream(self) -> TextIO | None:
        stream = getattr(sys, self.name)
        return getattr(stream, "rich_proxied_file", stream)  # rich has its own in its place while it shows a bar

    @property
    def encoding(self) -> str:
        return getattr(self.stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        try:
            return self.stream is not None and self.stream.isatty()
        except ValueError:  # it is closed
            return False

    def fileno(self) -> int:
        if self.stream is None:
            raise OSError("there is no such stream")
        return self.stream.fileno()

    def write(self, text: str) -> int:
        self._attempt("write", text.encode(self.encoding, PLAIN).decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        self._attempt("flush")

    def _attempt(self, call: str, *arguments: str) -> None:
        if self.stream is None:
            return
        try:
            getattr(self.stream, call)(*arguments)
        except (OSError, ValueError) as error:
            if isinstance(error, BrokenPipeError) and self.result:
                raise
            if self.result:
                reason = getattr(error, "strerror", None) or error
                raise UserError(f"The standard output cannot be written to ({reason}).") from error


class Console(rich.console.Console):
    """A console for text that may come from anyone: no markup, no emoji codes, and control characters are spelt out.

    Its writes never raise: what is lost is lost, and the work goes on. Only for a result, which is worth nothing
    unread, they raise BrokenPipeError, or else a UserError. An `unbroken` one has lines of any length where there is no
    terminal, unless COLUMNS says otherwise: programs look for names in them.
    """

    def __init__(self, *, stderr: bool = False, result: bool = False, unbroken: bool = False, **options: Any) -> None:
        output = Output("stderr" if stderr else "stdout", result)
        columns = os.environ.get("COLUMNS", "0")
        if unbroken and not output.isatty() and columns == "0":
            options["width"] = LONGEST_LINE
        elif columns == "0" and "COLUMNS" in os.environ:  # unknown; rich would print nothing at all
            options.setdefault("width", shutil.get_terminal_size().columns)
        options.setdefault("file", output)
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_result(text: str) -> None:
    """Print what a command was run for to the standard output, as it is.

    Raises:
        BrokenPipeError: Its reader has gone.
        UserError: It cannot be written to.
    """
    output = Output("stdout", result=True)
    output.write(f"{text}\n")
    output.flush()


def warn(text: str) -> None:
    """Print a warning on the standard error, apart from results."""
    Console(stderr=True).print(Text.assemble(("oneway: ", "bold red"), text), soft_wrap=True)


def open_streams() -> None:
    """Give the process the standard streams that it was started without, leading nowhere.

    Else the next file that is opened takes the number of a stream, and whatever prints, prints into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # not a file: a test's, a notebook's
            if stream.errors == "strict":
                stream.reconfigure(errors=PLAIN)  # type: ignore[union-attr]


def close_streams() -> None:
    """Flush the standard streams; what cannot be written is dropped, for else Python ends with status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
