"""Archives as annotation tools export them, unpacked in the cache. Nothing that one says leads out of its folder."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.words import composed, counted, in_bytes
from oneway.data.cache.locked import ANOTHER_CACHE
from oneway.data.cache.made_folder import ensure_folder
from oneway.data.decode.images import SUFFIXES, hidden

ZIP = ".zip"
MOST_FILES = 10**6  # in an archive
FREE_BYTES, BYTES_PER_BYTE = 2**30, 100
"""What an archive of any length may unpack to; to have more, it must have a byte for so many. Images hardly shrink."""

PART = 2**20  # bytes copied at once
DEEPEST = 4  # folders in which an archive may have all it holds
NAMES = {getattr(errno, kind) for kind in ("ENAMETOOLONG", "EEXIST", "ENOTDIR", "EISDIR", "EINVAL", "EILSEQ")}
"""What a disk says of a name that it cannot hold, or not beside the others."""


def unpack_archive(path: Path, cache: Path | None, console: Console) -> Path:
    """The folder with all that a zip file holds; where that is a single folder, the one inside."""
    by_hand = unzip_command(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _safe_entries(path, archive, by_hand)
            about = "\n".join(f"{entry.filename}\0{entry.CRC}\0{entry.file_size}" for entry in entries)
            folder = ensure_folder(
                path,
                about,
                cache,
                console,
                fill=lambda new: _extract(archive, entries, new, by_hand, console),
                is_whole=lambda made: all(_is_there(made, entry) for entry in entries),
            )
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path}: a damaged archive ({str(error)[:200]}). Export or download it again.") from None
    except RuntimeError as error:  # of an unknown compression, say
        reason = str(error)[:200]
        raise UserError(f"{path}: cannot be unpacked here ({reason}). Unpack it yourself: {by_hand}") from None
    return _innermost(folder)


def _innermost(folder: Path) -> Path:
    """The folder, or the one that is all it holds."""
    for _ in range(DEEPEST):
        inside = [entry for entry in os.scandir(folder) if not hidden(PurePosixPath(entry.name))]
        if len(inside) != 1 or not inside[0].is_dir():
            break
        folder = folder / inside[0].name
    return folder


def unzip_command(path: Path) -> str:
    """The command that unpacks an archive beside it."""
    return shlex.join(("unzip", str(path), "-d", str(path.with_suffix(""))))


def _safe_entries(path: Path, archive: zipfile.ZipFile, by_hand: str) -> list[zipfile.ZipInfo]:
    """The files of an archive, if it can be unpacked without harm; without what file managers leave behind."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    for entry in entries:
        _refuse_harmful(path, entry, by_hand)
    entries = [entry for entry in entries if not hidden(_place(entry))]
    _refuse_one_name(path, entries, by_hand)
    total, held = sum(entry.file_size for entry in entries), path.stat().st_size
    if len(entries) > MOST_FILES or total > max(FREE_BYTES, BYTES_PER_BYTE * held):
        raise UserError(
            f"{path}: {held:,} bytes would unpack to {counted(len(entries), 'file')} of {total:,} bytes, which is not "
            f"what images do. If you trust it, unpack it yourself: {by_hand}"
        )
    if not any(PurePosixPath(entry.filename).suffix.lower() in SUFFIXES for entry in entries):
        raise UserError(
            f"{path}: no image is in it. Export it together with the images ('Save images' in CVAT); or unpack it into "
            f"the folder of the images: unzip {shlex.quote(str(path))} -d FOLDER"
        )
    return entries


def _refuse_harmful(path: Path, entry: zipfile.ZipInfo, by_hand: str) -> None:
    """Refuse what would lie outside the folder, is a link or a device, or is encrypted."""
    place = _place(entry)
    outside = place.is_absolute() or ".." in place.parts or ":" in place.parts[0] or "\0" in entry.orig_filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if outside or not place.name or (kind and not stat.S_ISREG(kind)):
        why = "leads out of it" if outside else "is no ordinary file"
        raise UserError(f"{path}: {entry.filename!r:.200} in it {why}; nothing was unpacked.")
    if entry.flag_bits & 1:
        raise UserError(f"{path}: is locked with a password. Unpack it yourself: {by_hand}")


def _refuse_one_name(path: Path, entries: list[zipfile.ZipInfo], by_hand: str) -> None:
    """Refuse files that differ, and whose names are one where upper and lower case, or ways to store accents, are."""
    known: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        first = known.setdefault(composed(str(_place(entry))).casefold(), entry)
        if (first.CRC, first.file_size) != (entry.CRC, entry.file_size):
            names = f"{first.filename!r:.200} and {entry.filename!r:.200}"
            raise UserError(
                f"{path}: {names} in it differ, and many a disk keeps only one of them. Nothing was unpacked; export "
                f"it again, or unpack it yourself: {by_hand}"
            )


def _place(entry: zipfile.ZipInfo) -> PurePosixPath:
    return PurePosixPath(entry.filename.replace("\\", "/"))


def _is_there(folder: Path, entry: zipfile.ZipInfo) -> bool:
    path = folder / _place(entry)
    return os.path.isfile(path) and path.stat().st_size == entry.file_size


def _extract(
    archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], folder: Path, by_hand: str, console: Console
) -> None:
    total, free = sum(entry.file_size for entry in entries), shutil.disk_usage(folder).free
    if total > free:
        raise UserError(
            f"{archive.filename}: needs {in_bytes(total)}, and {in_bytes(free)} are free in {folder.parent}. "
            f"{ANOTHER_CACHE}"
        )
    with progress_bar(console, "Unpacking", len(entries)) as advance:
        for entry in entries:
            target = folder / _place(entry)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as packed, target.open("wb") as file:  # no more is read than announced
                    shutil.copyfileobj(packed, file, PART)
            except OSError as error:
                if error.errno not in NAMES:
                    raise
                raise UserError(
                    f"{archive.filename}: {entry.filename!r:.300} in it has a name that cannot be kept here "
                    f"({error.strerror}). Unpack it yourself: {by_hand}"
                ) from None
            advance()
