"""Images of a pool by number: read where the index says, compared with it, and decoded in part."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError, cannot_read
from oneway.data.dataset import Bytes
from oneway.data.decode.images import Box, read_part
from oneway.data.pool.entries import PoolIndex, digest_name
from oneway.data.pool.files import Files, changed
from oneway.data.pool.folder_index import time_stamp
from oneway.data.pool.shard_index import first_member, member_name
from oneway.data.pool.sources import PoolSource

TIMES = 3  # that an image with another checksum is asked for
MOST_BYTES = 2**28  # of an image file
MOST_HEADER = 2**20  # bytes before it

Choose = Callable[[tuple[int, int]], Box]
"""Chooses a part of an image by its height and width."""


class ImageRegion(NamedTuple):
    """A part of a decoded image."""

    size: tuple[int, int]  # height and width of the whole
    box: Box  # its first row and column, and those behind its last
    pixels: Bytes  # H×W×3, those of the box
    image: int  # which it is of the pool: another than was asked for, where that cannot be decoded


class Broken(UserError):
    """An image that cannot be decoded."""


@dataclass(eq=False)
class Reader:
    """Reads images; safe from several threads, and from other processes."""

    source: PoolSource
    index: PoolIndex
    files: Files  # what reads its shards
    factor: Callable[[tuple[int, int]], int]  # how many times smaller an image of some size is read

    def name(self, image: int) -> str:
        """The path of an image, with that of the shard that it is in."""
        folder = self.source.folder
        return member_name(self.index, self.files, image) if folder is None else str(folder / self.index.name(image))

    def content(self, image: int) -> tuple[str, bytes]:
        """Name and bytes of an image file.

        Raises:
            Broken: Its checksum differs from the index, or it is larger than any image should be.
            UserError: It cannot be read, or is another than was indexed.
        """
        return self._from_shard(image) if self.source.folder is None else self._from_folder(self.source.folder, image)

    def decode(self, image: int, choose: Choose = lambda size: (0, 0, *size)) -> ImageRegion:
        """A part of an image, chosen by its height and width.

        Raises:
            Broken: It cannot be decoded, as its content is damaged, too large, or no image.
            UserError: It cannot be read, or is another than was indexed.
        """
        name, content = self.content(image)
        if not content:
            raise Broken(f"{name}: an empty file.")
        try:
            return ImageRegion(*read_part(Path(name), content, choose, self.factor), image)
        except UserError as error:
            raise Broken(str(error)) from error

    def _from_shard(self, image: int) -> tuple[str, bytes]:
        shard, (entry,) = self.index.shard_of(image), self.index.entries(image)
        offset, size, header = (int(entry[column]) for column in ("offset", "size", "header"))
        if header > min(MOST_HEADER, offset):  # an index may come from anywhere
            raise changed(shard.path, shard.status, shard.status)
        if size > MOST_BYTES:
            raise too_large(self.name(image), size)
        for _ in range(TIMES if self.files.waits else 1):  # what is damaged on its way may come whole another time
            found = self.files.read(shard.path, offset - header, header + size, shard.status)
            whole = not entry["check"] or zlib.crc32(found[header:]) == entry["check"]
            if whole:
                break
        member = first_member(shard, found)
        if (digest_name(member.name), member.size, len(found)) != (int(entry["name"]), size, header + size):
            raise changed(shard.path, shard.status, shard.status)
        name = f"{shard.path}/{member.name}"
        if not whole and self.files.waits:
            raise UserError(f"{name}: damaged on its way; its checksum differs from the index.")
        if not whole:
            raise Broken(f"{name}: damaged; its checksum differs from the index.")
        return name, found[header:]

    def _from_folder(self, folder: Path, image: int) -> tuple[str, bytes]:
        (entry,) = self.index.entries(image)
        path = folder / self.index.name(image)
        try:
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
                content = file.read(min(status.st_size, MOST_BYTES + 1))
        except FileNotFoundError:
            raise UserError(f"{path}: gone since {folder} was indexed. Bring it back, or use --data.refresh.") from None
        except OSError as error:
            raise cannot_read(path, error) from error
        if (status.st_size, time_stamp(status)) != (entry["size"], entry["stamp"]):
            raise UserError(
                f"{path}: changed since it was indexed: it has {status.st_size} bytes, and had {entry['size']}, or was "
                "written later. Restore it, or accept the change with --data.refresh."
            )
        if len(content) > MOST_BYTES:
            raise too_large(str(path), status.st_size)
        return str(path), content


def too_large(name: str, size: int) -> Broken:
    """The error about a file of so many bytes, which are not read."""
    return Broken(f"{name}: has {size} bytes, larger than {MOST_BYTES}, the most for an image.")
