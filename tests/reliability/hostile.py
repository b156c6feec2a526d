"""Files that mean harm: code in every wrapping, bombs, headers that lie, paths and links that lead out of a folder.

Each is given to the reader it is made for. An audit hook watches the process: nothing may be run, and nothing outside
the folder opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from PIL import Image

from oneway import checkpoint
from oneway import config as configuration
from oneway.checkpoint import Damaged, sealed
from oneway.config import Model
from oneway.data import cifar10
from oneway.data.dataset import Samples
from oneway.data.decode.images import read_image
from oneway.data.decode.masks import read_mask
from oneway.data.folder import list_folder
from oneway.data.folder.description import Description, read_description
from oneway.data.splits import choose
from oneway.errors import UserError
from oneway.models.mlp import Perceptron
from oneway.models.weights import read as read_weights
from oneway.recipes import recipe
from oneway.run import open_run
from oneway.run.model_file import TrainedModel, load_model, save_model
from oneway.run.resume import resumed
from reliability.damage import trained

CPU = torch.device("cpu")
RUNS_SOMETHING = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn")
MIB = 300

Attempt = Callable[[Path], object]


class Payload:
    """What makes a trace when its pickle is read."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.trace}",)


def hostile(folder: str) -> dict[str, Any]:
    """Tries them all; returns how many there were, and what went wrong."""
    torch.set_num_threads(1)
    place, outside = Path(folder) / "inside", Path(folder) / "outside"
    outside.mkdir()
    Image.new("RGB", (8, 8)).save(outside / "secret.png")
    (outside / "secret.json").write_text("{}")
    (outside / "secret.txt").write_text("train/a.png\n")
    torch.save({"weight": torch.zeros(1)}, outside / "secret.pth")
    before = _contents(outside)
    events: list[str] = []
    watching = False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        if event in RUNS_SOMETHING:
            events.append(event)
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(str(outside)):
                events.append(f"open {path}")

    sys.addaudithook(watch)
    wrong: list[str] = []
    refused = 0
    attacks = dict(_attacks(outside))
    for number, (name, (prepare, attempt)) in enumerate(attacks.items()):
        here = place / str(number)
        here.mkdir(parents=True)
        prepare(here)
        os.chdir(here)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        watching = True
        try:
            attempt(here)
        except (UserError, Damaged):
            refused += 1
        except BaseException as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        finally:
            watching = False
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
        if growth > MIB:
            wrong.append(f"{name}: memory grew by {growth:.0f} MiB")
        if events:
            wrong.append(f"{name}: {events}")
            events.clear()
        if (outside / "trace").exists() or _contents(outside) != before:
            wrong.append(f"{name}: something was run or written")
            (outside / "trace").unlink(missing_ok=True)
    return {"tried": len(attacks), "refused": refused, "wrong": wrong}


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _attacks(outside: Path) -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    trace = outside / "trace"
    yield from _pickles(trace)
    yield from _yaml(trace)
    yield from _models(outside)
    yield from _headers()
    yield from _bombs()
    yield from _ways_out(outside)
    yield from _run_folders(outside)


def _file(name: str, content: bytes) -> Attempt:
    def prepare(here: Path) -> None:
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_bytes(content)

    return prepare


def _pickles(trace: Path) -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    payload = Payload(trace)
    archive, arrays, array = BytesIO(), BytesIO(), BytesIO()
    torch.save({"weight": payload}, archive)
    np.savez(arrays, weight=np.array([payload], dtype=object))
    np.save(array, np.array([payload], dtype=object), allow_pickle=True)
    legacy = BytesIO()
    torch.save({"weight": payload}, legacy, _use_new_zipfile_serialization=False)
    wrappings = {
        "pickle": pickle.dumps(payload),
        "old pickle": pickle.dumps(payload, 0),
        "torch archive": archive.getvalue(),
        "old torch file": legacy.getvalue(),
        "npz": arrays.getvalue(),
        "npy": array.getvalue(),
    }
    for kind, content in wrappings.items():
        yield f"{kind} as a model", (_file("m.safetensors", content), lambda p: load_model(p / "m.safetensors", CPU))
        yield f"{kind} as weights", (_file("w.pth", content), lambda p: read_weights(str(p / "w.pth")))
        yield f"{kind} as a checkpoint", (_checkpoint(content), _load_checkpoint)
    pickled = wrappings["pickle"]
    old = _file("checkpoint/00000020.safetensors", pickled)
    yield "pickle as a checkpoint of format 1", (old, _restore)
    yield "pickle as an image", (_file("a.png", pickled), lambda p: read_image(p / "a.png"))
    yield "npy as a mask", (_file("a.png", wrappings["npy"]), lambda p: read_mask(p / "a.png", NUMBERS))
    yield "pickle in CIFAR-10", (_file("test_batch", pickled), lambda p: cifar10.read(p, "val"))
    yield "pickle as a list", (_file("l.txt", pickled), lambda p: choose(SAMPLES, str(p / "l.txt"), 0))
    for name in ("split.json", "summary.json", "metrics.jsonl"):
        yield f"pickle as {name}", (_run_with(lambda run, name=name: (run / name).write_bytes(pickled)), _read_run)


NUMBERS = Description(classes=["a", "b"]).coding()
SAMPLES = Samples.stacked(("train/a.png",), np.zeros((1, 2, 2, 3), np.uint8), np.zeros((1, 2, 2), np.uint8))


def _yaml(trace: Path) -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    texts = {
        "a call": f"classes: !!python/object/apply:os.system ['touch {trace}']\n",
        "a new object": f"method: !!python/object/new:os.system ['touch {trace}']\n",
        "a module": "method: !!python/module:os\n",
        "a tuple of calls": f"labels: !!python/tuple [!!python/object/apply:os.system ['touch {trace}']]\n",
        "a billion laughs": laughs,
        "a billion laughs in a key": laughs + "method: *a39\nclasses: *a39\n",
        "brackets": "classes: " + "[" * 10_000,
    }
    for kind, text in texts.items():
        content = text.encode()
        yield f"YAML with {kind} as settings", (_file("c.yaml", content), _build)
        yield f"YAML with {kind} as a description", (_file("d.yaml", content), lambda p: read_description(p / "d.yaml"))


def _build(here: Path) -> object:
    return configuration.build(configuration.read_yaml(here / "c.yaml"), "c.yaml")


def _model(**words: Any) -> Attempt:
    """A model file that is in order, but for these words."""

    def prepare(here: Path) -> None:
        path = here / "m.safetensors"
        save_model(path, TrainedModel(Perceptron(2), ("a", "b"), ()), Model(name="mlp"))
        with safetensors.safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["oneway"])
            content = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        about["model"] |= words.pop("model", {})
        about |= {"format": 1, **words}
        path.write_bytes(safetensors.torch.save(content, {"oneway": json.dumps(about)}))
        (here / "evil.py").write_text(
            f"from pathlib import Path\nPath({str(here.parents[1])!r}, 'outside', 'trace').touch()\n"
        )

    return prepare


def _models(outside: Path) -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    for name, words in {
        "a factory of its own": {"model": {"factory": "evil:make"}},
        "a factory of the system": {"model": {"factory": "os:abort"}},
        "a network from a hub": {"model": {"name": "swiftnet", "backbone": "hf_hub:someone/something"}},
        "a network from a folder": {"model": {"name": "swiftnet", "backbone": f"local-dir:{outside}"}},
        "a network of gigabytes": {"model": {"name": "swiftnet", "backbone": "regnety_1280"}},
        "a network of no width": {"model": {"name": "swiftnet", "width": 1e-9}},
        "weights elsewhere": {"model": {"weights": str(outside / "secret.pth")}},
        "no classes": {"classes": []},
        "a million classes": {"classes": ["a"] * 10**6},
        "classes that move the cursor": {"classes": ["\x1b[2J", "b"]},
        "colours out of range": {"colours": [[0, 0, 300], [0, 0, 0]]},
        "a newer format": {"format": 10**9},
    }.items():
        yield f"model with {name}", (_model(**words), lambda p: load_model(p / "m.safetensors", CPU))


def _headers() -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    def sized(length: int, text: bytes) -> bytes:
        return struct.pack("<Q", length) + text

    def header(tree: object) -> bytes:
        text = json.dumps(tree).encode()
        return sized(len(text), text)

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for kind, content in {
        "a header of 2⁶³ bytes": sized(2**63, b"{}"),
        "a header longer than the file": sized(10**6, b"{}"),
        "brackets": sized(10**5, b"[" * 10**5),
        "a shape that overflows": header({"a": {**entry, "shape": [2**62, 2**62]}}) + bytes(8),
        "a shape of 2⁴⁰": header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}) + bytes(8),
        "offsets beyond the end": header({"a": {**entry, "data_offsets": [0, 2**60], "shape": [2**58]}}),
        "offsets backwards": header({"a": {**entry, "data_offsets": [8, 0]}}) + bytes(8),
        "tensors on one another": header({"a": entry, "b": entry}) + bytes(8),
        "a hole": header({"a": {**entry, "data_offsets": [8, 16]}}) + bytes(16),
        "metadata of another type": header({"__metadata__": {"oneway": 5}, "a": entry}) + bytes(8),
        "metadata of brackets": header({"__metadata__": {"oneway": "[" * 10**5}, "a": entry}) + bytes(8),
    }.items():
        yield f"{kind} in a model", (_file("m.safetensors", content), lambda p: load_model(p / "m.safetensors", CPU))
        yield f"{kind} in a checkpoint", (_checkpoint(content), _load_checkpoint)
    huge = "{" + f'"seal": "{"0" * 2**25}"' + "}"
    yield "a manifest of 32 MiB", (_checkpoint(b"", huge.encode()), _load_checkpoint)
    yield "a manifest of brackets", (_checkpoint(b"", b"[" * 10**5), _load_checkpoint)


def _checkpoint(content: bytes, manifest: bytes | None = None) -> Attempt:
    """A checkpoint with this in place of its tensors, its checksums in order."""
    words = {
        "format": checkpoint.FORMAT,
        "iteration": 20,
        "seconds": 1.0,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "tensors": {},
        "configuration": {},
        "split": "",
    }

    def prepare(here: Path) -> None:
        (here / "checkpoint").mkdir()
        (here / "checkpoint" / "00000020.safetensors").write_bytes(content)
        (here / "checkpoint" / "00000020.json").write_bytes(manifest or sealed(words))

    return prepare


def _load_checkpoint(here: Path) -> object:
    return checkpoint.load(here / "checkpoint" / "00000020.json", trained(1))


def _restore(here: Path) -> object:
    return checkpoint.restore_newest(here / "checkpoint", trained(1), lambda text: None)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _png(width: int, height: int, *chunks: bytes) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + _chunk(b"IEND", b"")


def _bombs() -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    deflate = zlib.compressobj()
    zeros = b"".join(deflate.compress(bytes(2**20)) for _ in range(512)) + deflate.flush()
    pixels = _chunk(b"IDAT", zlib.compress(bytes(8 * 25)))
    tiff = BytesIO()
    Image.new("L", (64, 64)).save(tiff, "TIFF", compression="tiff_deflate")
    for kind, content in {
        "pixels of 512 MiB for an image of 8×8": _png(8, 8, _chunk(b"IDAT", zeros)),
        "a text of 512 MiB": _png(8, 8, _chunk(b"zTXt", b"a\0\0" + zeros), pixels),
        "an international text of 512 MiB": _png(8, 8, _chunk(b"iTXt", b"a\0\1\0\0\0" + zeros), pixels),
        "a colour profile of 512 MiB": _png(8, 8, _chunk(b"iCCP", b"a\0\0" + zeros), pixels),
        "a side of 2³¹ pixels": _png(2**31 - 1, 2**31 - 1, pixels),
        "more pixels than a few bytes hold": _png(2**14, 2**14, pixels),
        "a TIFF whose strips lie": tiff.getvalue().replace(struct.pack("<I", 64), struct.pack("<I", 2**20)),
    }.items():
        yield f"{kind}, as an image", (_file("a.png", content), lambda p: read_image(p / "a.png"))
        yield f"{kind}, as a mask", (_file("a.png", content), lambda p: read_mask(p / "a.png", NUMBERS))


def _data(change: Callable[[Path], object]) -> Attempt:
    """A folder of images and masks, in order but for this."""

    def prepare(here: Path) -> None:
        for kind in ("images", "masks"):
            (here / kind).mkdir()
            for index in range(3):
                Image.fromarray(np.full((8, 8), index % 2, np.uint8)).save(here / kind / f"{index}.png")
        change(here)

    return prepare


def _list(here: Path) -> object:
    listing = list_folder(here, None, 0.3, 0)
    for item in (*listing.train, *listing.val):
        read_image(item.image)
        if item.mask:
            listing.read_labels(item)
    return listing


def _ways_out(outside: Path) -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    def described(text: str) -> Attempt:
        return _data(lambda here: (here / "dataset.yaml").write_text(text))

    def linked(name: str, target: Path) -> Attempt:
        def link(here: Path) -> None:
            if (here / name).is_dir():
                for file in (here / name).iterdir():
                    file.unlink()
                (here / name).rmdir()
            (here / name).unlink(missing_ok=True)
            (here / name).symlink_to(target)

        return _data(link)

    coco = {
        "images": [{"id": 1, "file_name": "../../../outside/secret.png", "height": 8, "width": 8}],
        "annotations": [],
        "categories": [{"id": 1, "name": "a"}],
    }
    for kind, prepare in {
        "images: ../": described("train: {images: ../../outside, masks: masks}\nclasses: [a, b]\n"),
        "images: /": described(f"train: {{images: {outside}, masks: masks}}\nclasses: [a, b]\n"),
        "masks: ../": described("train: {images: images, masks: ../../outside}\nclasses: [a, b]\n"),
        "unlabelled: ../": described("classes: [a, b]\nunlabelled: [images/../../../outside]\n"),
        "coco: ../": described("train: {images: images, coco: ../../outside/secret.json}\n"),
        "file_name: ../ in coco": _data(lambda here: (here / "images" / "a.json").write_text(json.dumps(coco))),
        "a link for an image": linked("images/1.png", outside / "secret.png"),
        "a link for a mask": linked("masks/1.png", outside / "secret.png"),
        "a link for a folder": linked("images", outside),
        "a link for a description": linked("dataset.yaml", outside / "secret.txt"),
        "a link among the unlabelled": linked("unlabelled", outside),
    }.items():
        yield f"data with {kind}", (prepare, _list)
    for entry in (f"{outside}/secret.png", "../../outside/secret.png", "train/../../../outside/secret.png"):
        listed = _file("l.txt", f"{entry}\n".encode())
        yield f"list with {entry.replace(str(outside), '…')}", (listed, lambda p: choose(SAMPLES, str(p / "l.txt"), 0))


def _run_with(change: Callable[[Path], object]) -> Attempt:
    """A run folder, in order but for this."""

    def prepare(here: Path) -> None:
        (here / "checkpoint").mkdir()
        (here / "config.yaml").write_text(recipe("moons").to_yaml())
        change(here)

    return prepare


def _read_run(here: Path) -> object:
    run = open_run(here)
    return run.summary, run.metrics(), run.split


def _resume(here: Path) -> None:
    config = recipe("moons")
    with resumed(here, config, allow_changes=False) as it:
        checkpoint.restore_newest(it.run.checkpoints, trained(1), lambda text: None)
        it.run.forget_metrics_after(0)
        it.run.log(iteration=1)


def _run_folders(outside: Path) -> Iterator[tuple[str, tuple[Attempt, Attempt]]]:
    def linked(name: str, target: Path) -> Attempt:
        def link(run: Path) -> None:
            if (run / name).is_dir():
                (run / name).rmdir()
            (run / name).unlink(missing_ok=True)
            (run / name).symlink_to(target)

        return _run_with(link)

    for name, target in {
        "checkpoint": outside,
        "metrics.jsonl": outside / "secret.txt",
        "config.yaml": outside / "secret.txt",
        ".lock": outside / "secret.txt",
        "checkpoint/.00000004.json.1.tmp": outside / "secret.txt",
    }.items():
        yield f"run with a link for {name}, resumed", (linked(name, target), _resume)
    for name in ("summary.json", "split.json", "metrics.jsonl"):
        yield f"run with a link for {name}, read", (linked(name, outside / "secret.json"), _read_run)
