"""Files with bytes changed, lost and doubled: each is read, or refused in a sentence that names it.

Every function runs in a process of its own and returns how many files it tried and read, the seconds of the slowest,
the growth of memory, and the failures.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config import Model
from oneway.config.recipes import recipe
from oneway.data.dataset import Samples
from oneway.data.decode.images import image_size, read_image
from oneway.data.decode.masks import read_mask
from oneway.data.folder.description import Description, read_description
from oneway.data.splits import choose
from oneway.models.mlp import Perceptron
from oneway.runs import checkpoint
from oneway.runs.checkpoint import Damaged, seal_manifest
from oneway.runs.model_file import TrainedModel, load_model, save_model
from reliability.damage import trained, write

SECONDS = 2.0
MIB = 300
HANG = 30
"""Seconds after which reading a file is stopped."""

Case = tuple[Path, Callable[[], Any]]


def measure(cases: Iterator[Case]) -> dict[str, Any]:
    """Reads each; any error but a UserError with the path in it is a failure."""
    torch.set_num_threads(1)

    def hang(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer in {HANG} s")

    signal.signal(signal.SIGALRM, hang)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tried, read, slowest = 0, 0, 0.0
    failures: list[str] = []
    for index, (path, attempt) in enumerate(cases):
        tried += 1
        began = time.process_time()
        signal.alarm(HANG)
        try:
            attempt()
            read += 1
        except (UserError, Damaged) as error:
            named = path.name in str(error) or isinstance(error, Damaged)
            if not named:
                failures.append(f"{index}: does not name {path}: {error}")
        except BaseException as error:
            failures.append(f"{index}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            signal.alarm(0)
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        if seconds > SECONDS:
            failures.append(f"{index}: took {seconds:.1f} s")
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    if growth > MIB:
        failures.append(f"memory grew by {growth:.0f} MiB")
    return {"tried": tried, "read": read, "slowest": slowest, "growth": growth, "failures": failures}


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with bytes changed, cut, doubled, inserted or made extreme; half of the time near the beginning."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        if not data:
            break
        reach = min(len(data), 256) if rng.random() < 0.5 else len(data)
        place = rng.randrange(reach)
        match rng.randrange(7):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                del data[place:]
            case 3:
                del data[place : place + rng.randrange(1, 64)]
            case 4:
                data[place:place] = data[place : place + rng.randrange(1, 256)]
            case 5:
                number = rng.choice((0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF))
                data[place : place + 4] = struct.pack(rng.choice(("<I", ">I")), number)
            case _:
                data[place:place] = rng.randbytes(rng.randrange(1, 32))
    return bytes(data)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def images(folder: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Photographs in every format and pixel type."""
    rng = random.Random(seed)
    pixels = np.random.default_rng(seed).integers(256, size=(24, 40, 3), dtype=np.uint8)
    colour, grey = Image.fromarray(pixels), Image.fromarray(pixels[..., 0])
    exif = Image.Exif()
    exif[0x0112] = 6
    deep = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    seeds = {
        "a.jpg": _saved(colour, "JPEG", exif=exif),
        "b.jpg": _saved(colour, "JPEG", progressive=True, quality=40),
        "c.png": _saved(colour, "PNG", exif=exif),
        "d.png": _saved(colour.convert("P"), "PNG"),
        "e.png": _saved(deep, "PNG"),
        "f.webp": _saved(colour, "WEBP", lossless=True),
        "g.webp": _saved(colour, "WEBP", exif=exif),
        "h.tif": _saved(colour, "TIFF", compression="tiff_lzw"),
        "i.tif": _saved(colour, "TIFF", compression="tiff_deflate"),
        "j.tif": _saved(deep, "TIFF"),
        "k.bmp": _saved(colour, "BMP"),
        "l.bmp": _saved(grey.convert("1"), "BMP"),
    }

    def attempt(path: Path) -> None:
        image = read_image(path)
        assert image.shape == (*image_size(path), 3)

    return measure(_files(Path(folder), seeds, count, rng, attempt))


def masks(folder: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Masks of numbers, in palettes and in colours."""
    rng = random.Random(seed)
    values = np.random.default_rng(seed).integers(3, size=(24, 40), dtype=np.uint8)
    painted = np.array([[0, 0, 0], [128, 64, 128], [0, 0, 142]], np.uint8)[values]
    numbers = Description(classes=["sky", "road", "car"]).coding()
    colours = Description(classes={"sky": [0, 0, 0], "road": [128, 64, 128], "car": [0, 0, 142]}).coding()
    grey = Image.fromarray(values)
    seeds = {
        "a.png": _saved(grey, "PNG"),
        "b.png": _saved(grey.convert("P"), "PNG"),
        "c.png": _saved(Image.fromarray(painted), "PNG"),
        "d.png": _saved(Image.fromarray(values.astype(np.uint16)), "PNG"),
        "e.png": _saved(Image.fromarray(values > 0), "PNG"),
        "f.tif": _saved(grey, "TIFF", compression="tiff_lzw"),
        "g.tif": _saved(Image.fromarray(painted), "TIFF", compression="packbits"),
        "h.bmp": _saved(grey, "BMP"),
        "i.bmp": _saved(Image.fromarray(painted), "BMP"),
    }

    def attempt(path: Path) -> None:
        labels = read_mask(path, colours if path.name[0] in "cgi" else numbers)
        with Image.open(path) as image:
            assert labels.shape == image.size[::-1]
        assert set(np.unique(labels)) <= {0, 1, 2, 255}

    return measure(_files(Path(folder), seeds, count, rng, attempt))


def _files(
    folder: Path, seeds: dict[str, bytes], count: int, rng: random.Random, attempt: Callable[[Path], None]
) -> Iterator[Case]:
    names = list(seeds)
    for index in range(count):
        path = folder / names[index % len(names)]
        path.write_bytes(mutated(seeds[path.name], rng))
        yield path, lambda path=path: attempt(path)


STRANGE: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 3, 99, 2**31, 2**63, -(2**70), 1e308, float("nan"), "", "x", "2", "\x00", "é" * 99),
    *([], {}, [[]], {"a": {"a": {}}}, "0" * 64, [0, 1], {"format": 3}, "../../x", "student.x"),
)


def _strange(value: Any, rng: random.Random) -> Any:
    """The value with one of its leaves, keys or branches replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        changed = dict(value)
        key = rng.choice(list(changed))
        match rng.randrange(4):
            case 0:
                del changed[key]
            case 1:
                changed[rng.choice((f"{key}x", "", "format", "\x00"))] = changed.pop(key)
            case _:
                changed[key] = _strange(changed[key], rng)
        return changed
    return rng.choice(STRANGE)


def checkpoints(folder: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Checkpoints and models: bytes changed, some of them with checksums that match the change."""
    rng = random.Random(seed)
    place = Path(folder) / "checkpoint"
    place.mkdir()
    write(place, 20, trained(3))
    manifest_path, tensors_path, model_path = (
        place / "00000020.json",
        place / "00000020.safetensors",
        place / "m.safetensors",
    )
    manifest, tensors = json.loads(manifest_path.read_bytes()), tensors_path.read_bytes()
    manifest.pop("seal")
    colours = ((0, 0, 0), (255, 255, 255))
    save_model(model_path, TrainedModel(Perceptron(2), ("a", "b"), colours), Model(name="mlp"))
    model = model_path.read_bytes()
    state = trained(1)

    def write_sealed(content: bytes, words: Any) -> None:
        tensors_path.write_bytes(content)
        if not isinstance(words, dict):
            manifest_path.write_text(json.dumps(words))
            return
        fitting = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest_path.write_bytes(seal_manifest({**words, **{key: fitting[key] for key in fitting if key in words}}))

    def cases() -> Iterator[Case]:
        for index in range(count):
            match index % 5:
                case 0:
                    tensors_path.write_bytes(mutated(tensors, rng))
                    manifest_path.write_bytes(mutated(seal_manifest(manifest), rng))
                    yield manifest_path, lambda: checkpoint.load(manifest_path, state)
                case 1:
                    write_sealed(mutated(tensors, rng), manifest)
                    yield tensors_path, lambda: checkpoint.load(manifest_path, state)
                case 2:
                    write_sealed(_header(tensors, rng), manifest)
                    yield tensors_path, lambda: checkpoint.load(manifest_path, state)
                case 3:
                    strange = _strange(manifest, rng) if rng.random() < 0.9 else {"format": rng.choice(STRANGE)}
                    write_sealed(tensors, strange)
                    yield manifest_path, lambda: checkpoint.load(manifest_path, state)
                case _:
                    model_path.write_bytes(_header(model, rng) if rng.random() < 0.5 else mutated(model, rng))
                    yield model_path, lambda: load_model(model_path, torch.device("cpu"))

    return measure(cases())


def _header(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file whose header or metadata have changed, and are still JSON."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if rng.random() < 0.5:
        about = _strange(json.loads(header["__metadata__"]["oneway"]), rng)
        header["__metadata__"] = {"oneway": json.dumps(about)} if rng.random() < 0.9 else rng.choice(STRANGE)
    else:
        header = _strange(header, rng)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def configurations(folder: str, count: int, seed: int = 0) -> dict[str, Any]:
    """`config.yaml` and `dataset.yaml`: text changed, and trees changed and written as YAML again."""
    rng = random.Random(seed)
    settings = [recipe(name).to_yaml() for name in ("streets", "moons", "folder")]
    descriptions = [
        "classes: [background, crack]\nignore: [255]\ntrain: {images: photos, masks: labels}\n",
        "classes: {road: [128, 64, 128], car: '#00008e'}\nunlabelled: [video]\n",
        "classes: {0: a, 255: b}\ncolours: [[0, 0, 0], [255, 0, 0]]\n",
        "train: {images: photos, coco: a.json}\nval: {images: more, coco: b.json}\n",
    ]
    config_path, description_path = Path(folder) / "config.yaml", Path(folder) / "dataset.yaml"

    def cases() -> Iterator[Case]:
        for index in range(count):
            path, seeds = ((config_path, settings), (description_path, descriptions))[index % 2]
            text = rng.choice(seeds)
            if rng.random() < 0.5:
                path.write_bytes(mutated(text.encode(), rng))
            else:
                tree = yaml.safe_load(text)
                for _ in range(rng.randrange(1, 4)):
                    tree = _strange(tree, rng)
                path.write_text(yaml.safe_dump(tree), encoding="utf-8")
            if path is config_path:
                yield path, lambda: configuration.build(configuration.read_yaml(config_path), str(config_path))
            else:
                yield path, lambda: read_description(description_path)

    return measure(cases())


def lists(folder: str, count: int, seed: int = 0) -> dict[str, Any]:
    """Lists of images, as `--labels` takes them."""
    rng = random.Random(seed)
    names = tuple(f"train/city {index % 3}/image-{index:03d}.png" for index in range(60))
    samples = Samples.stacked(names, np.zeros((60, 2, 2, 3), np.uint8), np.zeros((60, 2, 2), np.uint8))
    path = Path(folder) / "labels.txt"
    seeds = [
        "\n".join(names[::4]),
        "# a comment\r\n" + "\r\n".join(name.split("/")[-1] for name in names[:9]),
        "\n".join(f"leftImg8bit/{name} gtFine/{name.replace('.png', '_labels.png')}" for name in names[:20]),
        "\n".join(f"/home/someone/{name},1" for name in names[:20]),
    ]

    def attempt() -> None:
        split = choose(samples, str(path), seed=0)
        assert set(split.labelled) <= set(names)

    def cases() -> Iterator[Case]:
        for _ in range(count):
            path.write_bytes(mutated(rng.choice(seeds).encode(), rng))
            yield path, attempt

    return measure(cases())
