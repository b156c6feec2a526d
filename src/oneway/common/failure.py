"""What is said when a command fails: a sentence for what the user can mend, and for a bug how to report it."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oneway.common.run_files import CONFIG, ENVIRONMENT, TRACEBACK

BUG_STATUS = 70
"""Of a process that ends with a bug: EX_SOFTWARE of sysexits.h."""

NOTE = "in the run folder "


@contextmanager
def in_run_folder(folder: Path) -> Iterator[None]:
    """Whatever is raised within the block carries a note of the run folder."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{NOTE}{folder}")
        raise


def describe_bug(error: BaseException) -> str:
    """Three lines for an error nobody foresaw: what happened, where the traceback is, what to send."""
    last = (traceback.extract_tb(error.__traceback__) or [None])[-1]
    place = f" ({Path(last.filename).name}, line {last.lineno})" if last else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    folder = _run_folder(error)
    files = [path for path in (_written(error, folder), folder and folder / ENVIRONMENT) if path]
    send = " and ".join(str(path) for path in files if path.exists()) or "what --traceback shows"
    go_on = " What the run has saved is whole; --resume continues it." if folder else ""
    return (
        f"{what}{place}\nThis is a bug in oneway and not your mistake.{go_on}\n"
        f"Please report it with {send}. --traceback prints where it happened."
    )


def _run_folder(error: BaseException) -> Path | None:
    """None before the run has been started: there is nothing to continue, and its place stays free."""
    notes = [note.removeprefix(NOTE) for note in getattr(error, "__notes__", ()) if note.startswith(NOTE)]
    return Path(notes[0]) if notes and (Path(notes[0]) / CONFIG).is_file() else None


def _written(error: BaseException, folder: Path | None) -> Path | None:
    """The file with the traceback: in the run folder, or among the system's temporary files."""
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
