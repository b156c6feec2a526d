"""Folders made of one file that holds images, kept in the cache: an archive as annotation tools export it, or a video.

A folder is found again by the content of its file. Nothing that an archive says leads out of its folder.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.links import replace_file
from oneway.common.progress import progress_bar
from oneway.common.run_files import is_output
from oneway.common.words import counted, in_bytes, say
from oneway.config import Data
from oneway.data.cache.locked import ANOTHER_CACHE, cache_root, locked, new_folder
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.decode.video import VIDEO_SUFFIXES, BreaksOff, read_frames

ZIP = ".zip"
SHARDS = {".tar"}
MOST_FILES = 10**6  # in an archive
FREE_BYTES, BYTES_PER_BYTE = 2**30, 100
"""What an archive of any length may unpack to; to have more, it must have a byte for so many. Images hardly shrink."""

PART = 2**20  # bytes copied at once
LOOKED_AT = 16  # parts of a video by which it is known again
DEEPEST = 4  # folders in which an archive may have all it holds
USUAL_RATE = 25  # frames a second, where a video has no clock
QUALITY = 95  # of the JPEG files of frames: a video has lost more
FRAMES = ".frames.json"  # beside the folder of a video's frames: what should be in it
NAMES = {getattr(errno, kind) for kind in ("ENAMETOOLONG", "EEXIST", "ENOTDIR", "EISDIR", "EINVAL", "EILSEQ")}
"""What a disk says of a name that it cannot hold, or not beside the others."""


def unpacked(config: Data, console: Console) -> Data:
    """The settings, in which folders stand for archives and videos."""
    ways = {"path": as_folder, "unlabelled": as_images}
    places = {key: getattr(config, key) for key in ways}
    folders = {key: ways[key](place, console, config) for key, place in places.items() if place is not None}
    return config.model_copy(update=folders)


def as_images(place: Path | str, console: Console, config: Data) -> Path | str:
    """As `as_folder`, where no labels are needed: of a folder of nothing but videos, too, the one with their frames."""
    if videos := _videos_in(Path(place)):
        return unpack_frames(Path(place), videos, config.frames_every, config.cache, console)
    return as_folder(place, console, config)


def _videos_in(folder: Path) -> list[Path]:
    """The videos in a folder and those below, in order of name, if there is no image and no shard with them."""
    videos: list[Path] = []
    for place, inner, files in os.walk(folder):
        inner[:] = sorted(
            name for name in inner if not hidden(PurePosixPath(name)) and not is_output(Path(place, name))
        )
        for path in (Path(place, name) for name in sorted(files) if not hidden(PurePosixPath(name))):
            if path.suffix.lower() in SUFFIXES | SHARDS:
                return []
            if path.suffix.lower() in VIDEO_SUFFIXES and path.is_file() and not path.is_symlink():
                videos.append(path)
    return videos


def as_folder(place: Path | str, console: Console, config: Data) -> Path | str:
    """The folder that holds the images of an archive or of a video; of anything else, what was given.

    Raises:
        UserError: The file cannot be unpacked, or is not safe to; says why, and the way out.
    """
    path = Path(place)
    if path.suffix.lower() == ZIP and path.is_file():
        return unpack_archive(path, config.cache, console)
    if path.suffix.lower() in VIDEO_SUFFIXES and path.is_file():
        return unpack_frames(path, [path], config.frames_every, config.cache, console)
    return place


def unpack_archive(path: Path, cache: Path | None, console: Console) -> Path:
    """The folder with all that a zip file holds; where that is a single folder, the one inside."""
    by_hand = unzip_command(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = _safe_entries(path, archive, by_hand)
            about = "\n".join(f"{entry.filename}\0{entry.CRC}\0{entry.file_size}" for entry in entries)
            folder = _ensure_folder(
                path,
                about,
                cache,
                console,
                fill=lambda new: _extract(archive, entries, new, by_hand, console),
                is_whole=lambda made: all(_is_there(made, entry) for entry in entries),
            )
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path}: a damaged archive ({str(error)[:200]}). Export or download it again.") from None
    except (NotImplementedError, RuntimeError) as error:
        reason = str(error)[:200]
        raise UserError(f"{path}: cannot be unpacked here ({reason}). Unpack it yourself: {by_hand}") from None
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
        place = _place(entry)
        outside = place.is_absolute() or ".." in place.parts or ":" in place.parts[0] or "\0" in entry.orig_filename
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if outside or not place.name or (kind and not stat.S_ISREG(kind)):
            why = "leads out of it" if outside else "is no ordinary file"
            raise UserError(f"{path}: {entry.filename!r:.200} in it {why}; nothing was unpacked.")
        if entry.flag_bits & 1:
            raise UserError(f"{path}: is locked with a password. Unpack it yourself: {by_hand}")
    entries = [entry for entry in entries if not hidden(_place(entry))]
    known: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        first = known.setdefault(unicodedata.normalize("NFC", str(_place(entry))).casefold(), entry)
        if (first.CRC, first.file_size) != (entry.CRC, entry.file_size):
            names = f"{first.filename!r:.200} and {entry.filename!r:.200}"
            raise UserError(
                f"{path}: {names} in it differ, and many a disk keeps only one of them. Nothing was unpacked; export "
                f"it again, or unpack it yourself: {by_hand}"
            )
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


def unpack_frames(path: Path, videos: Sequence[Path], every: float, cache: Path | None, console: Console) -> Path:
    """The folder with frames of videos as JPEG files, one for each so many seconds, by their times.

    `path` is the only video, or a folder that holds them; frames of each are then in a folder of its name.
    """
    places = {video: PurePosixPath(video.relative_to(path).as_posix()) for video in videos}
    known_by = (" ".join((*place.parts, _known_by(video))) for video, place in places.items())

    def fill(new: Path) -> None:
        problems = {place: _write_frames(video, every, new / place, console) for video, place in places.items()}
        said = (": ".join((*place.parts[-1:], problem)) for place, problem in problems.items() if problem)
        noted = {"frames": _frames_in(new), "problem": "; ".join(said)}
        replace_file(new.parent / FRAMES, json.dumps(noted).encode())

    folder = _ensure_folder(path, f"{' '.join(known_by)} every {every:g} s", cache, console, fill, _has_frames)
    if problem := json.loads((folder.parent / FRAMES).read_bytes())["problem"]:
        say(console, f"Note: {path}: {problem}")
    return folder


def _known_by(video: Path) -> str:
    """The size of a file, and a digest of parts of it."""
    size, digest = video.stat().st_size, blake2b(digest_size=16)
    with video.open("rb") as file:
        for part in range(LOOKED_AT):
            file.seek(part * max(size - PART, 0) // (LOOKED_AT - 1))
            digest.update(file.read(PART))
    return f"{size} {digest.hexdigest()}"


def _has_frames(folder: Path) -> bool:
    """Whether all frames that were written are there."""
    try:
        noted = json.loads((folder.parent / FRAMES).read_bytes())
        return bool(noted["frames"] == _frames_in(folder)) and "problem" in noted
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _frames_in(folder: Path) -> list[int]:
    """How many files there are, and of how many bytes."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return [len(sizes), sum(sizes)]


def _write_frames(path: Path, every: float, folder: Path, console: Console) -> str:
    """Write the frames of a video into a folder, and return why it breaks off, where it does."""
    folder.mkdir(parents=True, exist_ok=True)
    step, due, written, problem = Fraction(every), Fraction(0), 0, ""

    def wanted(number: int, time: Fraction | None) -> bool:
        nonlocal due
        now = Fraction(number, USUAL_RATE) if time is None else time
        if now < due:
            return False
        due = (now // step + 1) * step
        return True

    try:
        for pixels, time in read_frames(path, wanted):
            name = f"{float(time):010.3f}" if time is not None else f"frame{written:06d}"
            Image.fromarray(pixels).save(folder / f"{name}.jpg", quality=QUALITY)
            written += 1
    except BreaksOff as error:
        problem = str(error).removeprefix(f"{path}: ")
    say(console, f"{path}: {counted(written, 'frame')}, one every {every:g} s (--data.frames-every).")
    return problem


def _ensure_folder(
    path: Path,
    about: str,
    cache: Path | None,
    console: Console,
    fill: Callable[[Path], None],
    is_whole: Callable[[Path], bool],
) -> Path:
    """The folder in the cache for a file that is known by some text (`about`), made where it is not there.

    `fill` writes it, where there is none, or one from which something is gone: not all that belongs there, as
    `is_whole` tells. A cache in which it is whole need not be writable.
    """
    key = blake2b(about.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    home = cache_root(cache) / "unpacked" / key
    target = home / ("unpacked" if path.stem.startswith(".") else path.stem)  # a stem may be `.` or `..`
    if is_whole(target):
        return target
    with locked(home, "unpacking", console, private=cache is None, kept="unpacked files"):
        if not is_whole(target):  # nor made by another process meanwhile
            with new_folder(target) as new:
                fill(new)
            say(console, f"{path}: unpacked into {target}")
    return target
