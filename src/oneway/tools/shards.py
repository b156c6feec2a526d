"""Packs a folder of images into tar shards in WebDataset's format, with an index of them."""

from __future__ import annotations

import tarfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from oneway.common.errors import UserError, cannot_read
from oneway.common.progress import progress_bar
from oneway.common.words import counted, say
from oneway.data.pool.entries import PART, Shard, digest_entries, save
from oneway.data.pool.files import LocalFiles, Status
from oneway.data.pool.folder_index import list_images
from oneway.data.pool.shard_index import BESIDE, entries_of, images_of
from oneway.runs.atomic import sync

DIGITS = 5  # of a shard's name, at least


class Packed(NamedTuple):
    """What came of it."""

    images: int
    shards: int
    bytes: int


def pack(folder: Path, out: Path, size: int, console: Console) -> Packed:
    """Pack the images of a folder and its subfolders, in order of name and byte by byte as they are.

    Run again after an interruption, with the same `out`, it goes on behind the last complete shard.

    Raises:
        UserError: There is no image, or `out` has other files; or a file cannot be read or written.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder.")
    images = list_images(folder)
    if not images:
        raise UserError(f"{folder}: no image found, nor in its subfolders.")
    groups = [images[first : first + size] for first in range(0, len(images), size)]
    digits = max(DIGITS, len(str(len(groups) - 1)))
    names = [f"{number:0{digits}}.tar" for number in range(len(groups))]
    _require_free(out, names)
    shards: list[Shard] = []
    try:
        (out / BESIDE).mkdir(parents=True, exist_ok=True)
        with (
            (out / BESIDE / PART).open("wb") as entries,
            progress_bar(console, "Packing shards", len(groups)) as advance,
        ):
            for name, group in zip(names, groups, strict=True):
                checks = _check_existing(out / name, group) or _write(out / name, group)
                status = Status((out / name).stat().st_size, "")
                found = entries_of(images_of(str(out / name), LocalFiles(), status), checks)
                entries.write(found.tobytes())
                shards.append(Shard(name, status, len(found), digest_entries([found])))
                advance()
        save(out / BESIDE, shards)
    except OSError as error:
        raise UserError(f"{error.filename or out}: cannot be written ({error.strerror or error}).") from error
    dotted = [name for name, path in images if "." in path.stem]
    if dotted:
        say(
            console,
            f"Note: {counted(len(dotted), 'name')} with a dot before the suffix, such as {dotted[0]}: WebDataset takes "
            "what is before the first dot for the name of a sample. oneway does not mind.",
        )
    return Packed(len(images), len(shards), sum(shard.status.size for shard in shards))


def _require_free(out: Path, names: list[str]) -> None:
    """Refuse a folder with something else in it, which would be taken for shards of this pool, or be lost."""
    found = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if other := sorted(found - {*names, *(f"{name}.new" for name in names), BESIDE}):
        raise UserError(f"{out}: has {other[0]} in it, which is no shard of these images. Choose another folder.")


def _write(shard: Path, images: list[tuple[str, Path]]) -> list[int]:
    """Write a shard, and return the CRC-32 of each image; it has its name when it is complete."""
    checks = []
    new = shard.with_name(f"{shard.name}.new")
    with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in images:
            content = _read(path)
            info = tarfile.TarInfo(name)  # without times and owners: the same images give the same shards
            info.size = len(content)
            tar.addfile(info, BytesIO(content))
            checks.append(zlib.crc32(content))
    sync(new)
    new.rename(shard)
    return checks


def _check_existing(shard: Path, images: list[tuple[str, Path]]) -> list[int] | None:
    """The CRC-32 of each image of a shard that has been written already; None where there is none."""
    if not shard.exists():
        return None
    checks = []
    try:
        with tarfile.open(shard, "r:") as tar:
            for name, path in images:
                info = tar.next()
                content = _read(path)
                found = tar.extractfile(info) if info is not None else None
                if info is None or found is None or info.name != name or found.read() != content:
                    raise UserError(f"{shard}: is there already, with other images than {name}. Choose another folder.")
                checks.append(zlib.crc32(content))
            if tar.next() is not None:
                raise UserError(
                    f"{shard}: is there already, with more than {len(images)} images: another --size was given, or "
                    "some are gone since. Give that --size, or choose another folder."
                )
    except tarfile.TarError as error:
        raise UserError(f"{shard}: damaged ({error}). Remove it: it is packed again.") from None
    return checks


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from error
