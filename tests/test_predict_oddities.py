"""One file that cannot be handled never stops a whole prediction: it is named, and the others are predicted."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.data.streets import render
from oneway.tools.predict import Outputs, predict_files
from small_runs import QUIET

NAMES = (b"a\nb.png", b"\xff\xfe.png", b"x" * 245 + b".png", b"y" * 250 + b".png", b"-rf.png", b"\x1b[2J.png", b" .png")
"""With a newline, not UTF-8, of 249 and 254 bytes, an option, a terminal's escape, nothing to see."""


def scene(height: int = 64, width: int = 128) -> Image.Image:
    return Image.fromarray(render(0, 0, 64, 128)[0]).resize((width, height))


def test_any_name_of_a_file_system_is_predicted(model, tmp_path, capfd):
    """Each result has the name of its image, byte for byte; the index is UTF-8 and names them all."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in NAMES:
        scene().save(photos / os.fsdecode(name))
    outputs = Outputs(tmp_path / "out", confidence=True, facts=True)
    assert predict_files(model, [str(photos)], outputs, QUIET, as_json=True) == 0
    results = json.loads(capfd.readouterr().out)["results"]
    assert {os.fsencode(Path(result["image"]).name) for result in results} == {*NAMES}
    for kind in ("masks", "confidence"):
        assert {*os.listdir(os.fsencode(tmp_path / "out" / kind))} == {*NAMES}
    for file in (tmp_path / "out/json").iterdir():
        assert os.fsencode(Path(json.loads(file.read_bytes())["image"]).stem) == os.fsencode(file.stem)


def test_what_cannot_be_handled_is_named_and_the_rest_predicted(model, tmp_path, capfd):
    """Pipes, folders and links in the place of results, pictures longer than a JPEG can be; status 1, and a count."""
    photos, out = tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        scene().save(photos / name)
    scene(1, 66_000).save(photos / "long.png")
    os.mkfifo(photos / "pipe.png")
    os.mkfifo(photos / "pipe.mp4")
    (out / "masks/b.png").mkdir(parents=True)
    (out / "predictions.json").write_text('{"oneway": "0.1.0"}')
    paths = [str(photos), str(photos / "pipe.png"), str(photos / "pipe.mp4")]
    assert predict_files(model, paths, Outputs(out), QUIET) == 1
    errors = capfd.readouterr().err
    for name in ("b.png", "pipe.png", "pipe.mp4"):
        assert name in errors
    index = json.loads((out / "predictions.json").read_text())
    assert index["images"] + len(index["errors"]) == 6
    assert (out / "masks/a.png").is_file()
    assert (out / "masks/c.png").is_file()


def test_images_that_use_14_of_16_bits_are_said(model, tmp_path, capfd):
    """As long as none of them is brighter."""
    for name, most in (("a", 16_383), ("b", 10_200), ("c", 16_384)):
        stored = np.asarray(scene().convert("L")).astype(np.float32)
        Image.fromarray((stored * most / stored.max()).astype(np.uint16)).save(tmp_path / f"{name}.png")
    both = [str(tmp_path / f"{name}.png") for name in "ab"]
    assert predict_files(model, both, Outputs(tmp_path / "out"), QUIET) == 0
    (told,) = capfd.readouterr().err.splitlines()
    assert "Of the 2 images in 16 bits, no value exceeds 63 of 255" in told
    assert "`bits: 14`" in told
    assert predict_files(model, [*both, str(tmp_path / "c.png")], Outputs(tmp_path / "out"), QUIET) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("size", [(1, 64), (64, 1), (1, 1), (1, 3000), (2, 2), (1, 9000)])
@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_images_of_a_single_row(model, tmp_path, size, tile):
    """Are predicted as they are."""
    scene(*size).save(tmp_path / "a.png")
    assert predict_files(model, [str(tmp_path / "a.png")], Outputs(tmp_path / "out"), QUIET, tile) == 0
    assert Image.open(tmp_path / "out/masks/a.png").size == size[::-1]


FRAMES = 40


def write_video(path: Path, **options: str) -> Path:
    """Frames of noise, so that each has many bytes; every tenth can be decoded by itself."""
    av = pytest.importorskip("av")
    rng = np.random.default_rng(0)
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream("mpeg4", 10, options={"g": "10", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(FRAMES):
            pixels = rng.integers(256, size=(48, 64, 3), dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.avi", "a.mov"])
@pytest.mark.parametrize("frames", [False, True])
def test_a_video_that_breaks_off(model, tmp_path, capfd, name, frames):
    """What could be read is kept; the file and how many frames of how many are named; status 1. A whole one is fine."""
    path = write_video(tmp_path / name, **({"movflags": "faststart"} if name[2:] in ("mp4", "mov") else {}))
    whole = Outputs(tmp_path / "whole", frames=frames)
    assert predict_files(model, [str(path)], whole, QUIET, as_json=True) == 0
    assert capfd.readouterr().err == ""
    os.truncate(path, path.stat().st_size * 6 // 10)
    outputs = Outputs(tmp_path / "out", frames=frames)
    assert predict_files(model, [str(path)], outputs, QUIET) == 1
    told = " ".join(capfd.readouterr().err.split())
    assert name in told
    count = json.loads((tmp_path / "out/predictions.json").read_text())["images"]
    assert 10 < count < FRAMES
    assert f"{count} of {FRAMES} frames" in told
    if frames:
        assert len(list((tmp_path / "out/masks/a.frames").iterdir())) == count
    else:
        import av

        with av.open(str(tmp_path / "out/overlays/a.mp4")) as container:
            assert sum(1 for _ in container.decode(video=0)) == count
