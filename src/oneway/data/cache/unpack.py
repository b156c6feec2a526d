"""Folders made of one file that holds images: an archive as annotation tools export it, or a video."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from rich.console import Console

from oneway.common.run_files import is_output
from oneway.config import Data
from oneway.data.cache.archives import ZIP, unpack_archive
from oneway.data.cache.frames import unpack_frames
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.decode.video import VIDEO_SUFFIXES

SHARDS = {".tar"}


def unpacked(config: Data, console: Console) -> Data:
    """The settings, in which folders stand for archives and videos."""
    ways = {"path": as_folder, "unlabelled": as_images}
    places = {key: getattr(config, key) for key in ways}
    folders = {key: ways[key](place, console, config) for key, place in places.items() if place is not None}
    return config.model_copy(update=folders)


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
