"""What is printed about a bug: what happened, where the traceback is, and how to report it."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oneway.common import words
from oneway.common.run_files import CONFIG, ENVIRONMENT, TRACEBACK

BUG_STATUS = 70
"""The exit status of a process that ends with a bug: EX_SOFTWARE of sysexits.h."""

NOTE = "in the run folder "


@contextmanager
def note_run_folder(folder: Path) -> Iterator[None]:
    """An error that is raised within the block gets a note with the run folder."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{NOTE}{folder}")
        raise


def describe_bug(error: BaseException) -> str:
    """Three lines about an unexpected error: what happened, where the traceback is, what to send.

    A program of the user's own may be at fault itself, and then the line in it says most.
    """
    own = None if words.PROGRAM == ["oneway"] else Path(words.PROGRAM[-1]).name
    frames = traceback.extract_tb(error.__traceback__)
    last = next(reversed([frame for frame in frames if Path(frame.filename).name == own] or frames), None)
    blame = "a bug in oneway and not your mistake" if own is None else f"a mistake in {own} or a bug in oneway"
    place = f" ({Path(last.filename).name}, line {last.lineno})" if last else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    folder = _run_folder(error)
    files = [path for path in (_write_traceback(error, folder), folder and folder / ENVIRONMENT) if path]
    send = " and ".join(str(path) for path in files if path.exists()) or "what --traceback shows"
    advice = " What the run has saved is whole; --resume continues it." if folder else ""
    return (
        f"{what}{place}\nThis is {blame}.{advice}\n"
        f"Please report {'it' if own is None else 'a bug'} with {send}. --traceback prints where it happened."
    )


def _run_folder(error: BaseException) -> Path | None:
    """The folder in the error's note; None before the run was started, when there is nothing to continue."""
    notes = [note.removeprefix(NOTE) for note in getattr(error, "__notes__", ()) if note.startswith(NOTE)]
    return Path(notes[0]) if notes and (Path(notes[0]) / CONFIG).is_file() else None


def _write_traceback(error: BaseException, folder: Path | None) -> Path | None:
    """Write the traceback into the run folder or a temporary file, and return its path; None where neither works."""
    text = "".join(traceback.format_exception(error))
    try:
        if folder is not None:
            path = folder / TRACEBACK
            path.unlink(missing_ok=True)
            path.write_text(text, encoding="utf-8")
            return path
        descriptor, name = tempfile.mkstemp(prefix="oneway-traceback-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return Path(name)
    except OSError:
        return None
