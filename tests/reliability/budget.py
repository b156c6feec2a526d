"""A budget of time and memory for files that mean harm: each is given to every reader it could reach, in a process.

A reader ends with a result or with our own error, within SECONDS of processor time and MIB of memory. Files are made in
a process of their own, so that their making does not count.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.data.check import check_data
from oneway.data.check.inspection import check_folder
from oneway.data.check.survey import decode_and_survey
from oneway.data.dataset import Item, Listing
from oneway.data.folder import list_folder
from oneway.data.folder.mask_summary import summarise_mask
from oneway.tools.explore.images import decode_upload
from oneway.tools.explore.limits import Limits
from oneway.tools.predict import Outputs, Predictor, predict_files
from reliability.hostile_images import images, sparse

SECONDS = 2.0
MIB = 300
HANG = 20
"""Seconds after which a process is ended."""

QUIET = Console(quiet=True)
SMALL = Image.fromarray(np.arange(64 * 64, dtype=np.uint8).reshape(64, 64) % 2)
Reader = Callable[[Path], object]
Writer = Callable[[Path], None]


def _listing(path: Path, mask: bool) -> tuple[Listing, Item]:
    """A data set, and an item of which the file is the image or the mask; a pipe or a socket, it does not list."""
    folder = path.parent / "data"
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
        for name in ("a", "b", "c"):
            SMALL.save(folder / kind / f"{name}.png")
    listing = list_folder(folder, None, 0.3, 0)
    good = folder / "images/a.png"
    return listing, Item("a", good, path) if mask else Item("a", path)


def decode_for_training(path: Path) -> None:
    """As `train` decodes an image, and its survey."""
    listing, item = _listing(path, mask=False)
    survey, *_ = decode_and_survey(listing, item)
    if survey.problem:
        raise UserError(survey.problem)


def decode_for_labels(path: Path) -> None:
    """As `train` decodes a mask."""
    listing, item = _listing(path, mask=True)
    survey, *_ = decode_and_survey(listing, item)
    if survey.problem:
        raise UserError(survey.problem)


def check(path: Path) -> None:
    """`oneway check` of a data set with it."""
    listing, item = _listing(path, mask=False)
    check_data(replace(listing, train=(*listing.train, item)), QUIET)


def predict(path: Path) -> None:
    """`oneway predict`, up to what the network sees: that is bounded by --tile, and not by the file."""

    class Stub(Predictor):
        def predict_batch(self, pictures: Any, *how: Any) -> Any:
            raise UserError("decoded.")

    network = torch.nn.Identity()
    model = Stub(network, ("a", "b"), ((0, 0, 0), (1, 1, 1)), torch.device("cpu"), Path("model"), False)
    with redirect_stderr(io.StringIO()):
        predict_files(model, [str(path)], Outputs(path.parent / "out"), QUIET)


def upload(path: Path) -> None:
    """What the page of `oneway explore` does with a file that is sent."""
    if not path.is_file() or path.stat().st_size > Limits().upload:
        return
    decode_upload(path.read_bytes(), path.name)


READERS: dict[str, Reader] = {
    "check": check,
    "train, as an image": decode_for_training,
    "train, as a mask": decode_for_labels,
    "train, for its classes": summarise_mask,
    "predict": predict,
    "explore": upload,
}


def kinds(suffix: str) -> dict[str, Writer]:
    """What is no regular file, or pretends to be long, under the name of an image or a text."""

    def bind(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(path.parent)  # the name of a socket is short
            server.bind(path.name)
            os.chdir(here)

    beginnings = {
        ".jpg": b"\xff\xd8\xff\xe0\0\x02",
        ".png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\2\0\0\0\0\0\0\0\x7f\xff\xff\xfftEXt",
        ".tif": b"II*\0\x08\0\0\0\x01\0\x0f\x01\x02\0\0\0\0\x40\x08\0\0\0\0\0\0\0",
        ".webp": b"RIFF\xff\xff\xff\x7fWEBPVP8 ",
        ".bmp": b"BM",
        ".json": b'{"images": [',
        ".txt": b"a\nb\n",
    }
    return {
        "a pipe": lambda path: os.mkfifo(path),
        "a socket": bind,
        "an endless device": lambda path: path.symlink_to("/dev/zero"),
        "a sparse file of 8 GiB": sparse(beginnings.get(suffix, b""), 8 * 2**30),
    }


def texts() -> dict[str, tuple[str, Writer]]:
    """Files beside images: the name below the data folder, and what is put there."""
    found: dict[str, tuple[str, Writer]] = {}
    for name in ("dataset.yaml", "classes.txt", "labelmap.txt", "annotations.json", "images/a.json", "images/a.txt"):
        for kind, write in kinds(Path(name).suffix).items():
            found[f"{kind} for {name}"] = name, write
    nested = b'{"images": ' + b"[" * 10**6
    found["a million brackets"] = "annotations.json", lambda path: path.write_bytes(nested) and None
    many = b'{"images": [' + b"{}," * 10**6 + b"{}]}"
    found["a million empty objects"] = "annotations.json", lambda path: path.write_bytes(many) and None
    lines = b"".join(b"class %d\n" % number for number in range(10**5))
    found["100,000 classes"] = "classes.txt", lambda path: path.write_bytes(lines) and None
    return found


def read_folder(path: Path) -> None:
    """`oneway check` of a folder in which a text is hostile."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        check_folder(path, QUIET, as_json=True)


def hostile_files() -> Iterator[tuple[str, str, Writer]]:
    """What each does, its suffix, and what writes it."""
    for name, (suffix, make) in images().items():
        yield name, suffix, lambda path, make=make: path.write_bytes(make()) and None  # type: ignore[misc]
    for suffix in (".jpg", ".png", ".tif", ".webp", ".bmp"):
        for kind, write in kinds(suffix).items():
            yield f"{kind}, {suffix}", suffix, write


def cases(folder: Path, part: int, parts: int) -> Iterator[tuple[str, Path, Reader]]:
    """A part of all files, each with every reader it can reach: a name, the path, and the reader."""
    for number, (name, suffix, write) in enumerate(hostile_files()):
        if number % parts == part:
            file = folder / f"{number}{suffix}"
            _in_child(lambda write=write, file=file: write(file))  # type: ignore[misc]
            for reader, read in READERS.items():
                place = folder / f"{number}-{len(reader)}"
                place.mkdir()
                os.link(file, place / file.name, follow_symlinks=False)
                yield f"{name}: {reader}", place / file.name, read
                shutil.rmtree(place)
            file.unlink()
    for number, (name, (inner, put)) in enumerate(texts().items()):
        if number % parts == part:
            data = folder / f"texts-{number}"
            for kind in ("images", "masks") if "json" not in inner else ("images",):
                (data / kind).mkdir(parents=True)
                for stem in ("a", "b", "c"):
                    SMALL.save(data / kind / f"{stem}.png")
            put(data / inner)
            yield f"{name}: check", data, read_folder
            shutil.rmtree(data)


def budget(folder: str, part: int, parts: int) -> dict[str, Any]:
    """Tries them; returns how many there were, the slowest, the largest, and what went over the budget."""
    torch.set_num_threads(1)
    Path(folder).mkdir()
    _import_what_readers_need(Path(folder))
    tried, slowest, largest = 0, 0.0, 0.0
    wrong: list[str] = []
    for name, path, read in cases(Path(folder), part, parts):
        tried += 1
        found = _in_child(lambda read=read, path=path: read(path))  # type: ignore[misc]
        slowest, largest = max(slowest, found["seconds"]), max(largest, found["mib"])
        if found["problem"] or found["seconds"] > SECONDS or found["mib"] > MIB:
            wrong.append(f"{name}: {found['problem']} {found['seconds']:.1f} s, {found['mib']:.0f} MiB")
    return {"tried": tried, "slowest": slowest, "largest": largest, "wrong": wrong}


def _import_what_readers_need(folder: Path) -> None:
    """By reading a good file: what is imported on first use is no cost of a file."""
    for number, read in enumerate(READERS.values()):
        (folder / f"good-{number}").mkdir()
        SMALL.save(folder / f"good-{number}" / "good.png")
        with suppress(UserError):
            read(folder / f"good-{number}" / "good.png")
    read_folder(folder / "good-0" / "data")


def _in_child(work: Callable[[], object]) -> dict[str, Any]:
    """What becomes of a function in a fork: seconds, growth of memory, and an end that is not our own."""
    readable, writable = os.pipe()
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANG)
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        problem = ""
        try:
            work()
        except UserError:
            pass
        except BaseException as error:
            problem = f"{type(error).__name__}: {str(error)[:300]}"
        seconds = time.process_time() - began
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        os.write(writable, json.dumps({"seconds": seconds, "mib": growth, "problem": problem}).encode())
        os._exit(0)
    os.close(writable)
    with open(readable, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(process, 0)
    ended = {"seconds": HANG, "mib": 0.0, "problem": f"ended with {os.waitstatus_to_exitcode(status)}"}
    found: dict[str, Any] = json.loads(answer) if answer else ended
    return found
