"""Facts about videos: overlays at the same times, frames with masks, and broken ones."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oneway.common import progress
from oneway.common.errors import UserError
from oneway.data.streets import render
from oneway.tools.annotations import AnnotationSettings
from oneway.tools.predict import Outputs, predict_files, video
from oneway.tools.predict.video import CODECS
from small_runs import QUIET


def scene(index: int = 0, height: int = 64, width: int = 128) -> np.ndarray:
    return render(0, index, height, width)[0]


@pytest.fixture
def photos(tmp_path) -> Path:
    """Three images."""
    (tmp_path / "photos").mkdir()
    for name in "abc":
        Image.fromarray(scene()).save(tmp_path / "photos" / f"{name}.png")
    return tmp_path / "photos"


@pytest.fixture
def clip(tmp_path) -> Path:
    """Five frames at uneven times."""
    av = pytest.importorskip("av")
    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", 10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 10)
        for index, time in enumerate((0, 1, 2, 5, 6)):
            frame = av.VideoFrame.from_ndarray(scene(index, 64, 96), format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("frames", [False, True])
def test_how_far_a_video_has_come_is_shown(model, clip, photos, tmp_path, monkeypatch, frames):
    """One of an hour is a single file; so is an image of many tiles. What came before is not said of the next."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    shown = io.StringIO()
    outputs, paths = Outputs(tmp_path / "out", frames=frames), [str(clip), str(photos / "a.png")]
    predict_files(model, paths, outputs, Console(file=shown, width=80), tile=(64, 64))
    lines = [" ".join(line.split()) for line in shown.getvalue().splitlines()]
    assert {f"Predicting 1/2 clip.mp4: frame {number}" for number in range(1, 6)} <= {*lines}
    assert {line.partition(" a.png: ")[2] for line in lines} >= {"tile 1 of 6", "tile 6 of 6"}
    assert not any(line.startswith(("Predicting 1/2 a.png", "Predicting 2/2 clip")) for line in lines)


@pytest.mark.parametrize("codec", CODECS)
def test_a_video_gets_an_overlay_video(model, clip, tmp_path, capfd, monkeypatch, codec):
    """Frames of the same size and number at the same times, until the same end; they look like the frames' overlays."""
    import av

    if codec not in av.codecs_available:
        pytest.skip(f"no {codec} here")
    monkeypatch.setattr(video, "CODECS", {codec: CODECS[codec]})
    assert predict_files(model, [str(clip)], Outputs(tmp_path / "out"), QUIET, as_json=True) == 0
    overlay = str(tmp_path / "out/overlays/clip.mp4")
    assert json.loads(capfd.readouterr().out)["results"] == [{"video": str(clip), "overlay": overlay, "frames": 5}]
    with av.open(str(clip)) as container:
        original = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
        lasts = container.duration
    with av.open(overlay) as container:
        found = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
        assert container.duration == pytest.approx(lasts, abs=1e3)  # µs
    assert [time for time, _ in found] == pytest.approx([time for time, _ in original], abs=1e-3)
    for (_, pixels), (_, shown) in zip(original, found, strict=True):
        expected = np.asarray(model.predict(pixels).overlay()).astype(float)
        assert np.abs(shown - expected).mean() < 8
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_video_can_become_frames_with_masks(model, clip, tmp_path):
    """Numbered from one, in a folder of its own."""
    assert predict_files(model, [str(clip)], Outputs(tmp_path / "out", frames=True), QUIET) == 0
    for kind, suffix in {"masks": "png", "overlays": "jpg"}.items():
        names = sorted(path.name for path in (tmp_path / "out" / kind / "clip.frames").iterdir())
        assert names == [f"{number:06}.{suffix}" for number in range(1, 6)]


def test_what_frames_alone_have_is_asked_for_with_frames(model, clip, photos, tmp_path, capfd):
    """Refused of a video alone; of images beside it, it is written, and said."""
    with pytest.raises(UserError, match=r"a video, of which --confidence and --facts .* Add --frames"):
        predict_files(model, [str(clip)], Outputs(tmp_path / "a", confidence=True), QUIET)
    assert not (tmp_path / "a").exists()
    assert predict_files(model, [str(clip), str(photos)], Outputs(tmp_path / "b", facts=True), QUIET) == 0
    assert list((tmp_path / "b/json").rglob("*.json"))
    assert "Without --frames they are written for images alone" in capfd.readouterr().err


def test_a_video_alone_has_nothing_to_annotate(model, clip, photos, tmp_path, capfd):
    """Which is said before anything is predicted; beside images it is left out, with a word."""
    for frames in (False, True):
        export = AnnotationSettings("coco").export(model, tmp_path / "out/coco")
        with pytest.raises(UserError, match=r"clip\.mp4: a video, and --to coco is for images.* ffmpeg -i "):
            predict_files(model, [str(clip)], Outputs(tmp_path / "out", frames=frames), QUIET, export=export)
    assert not (tmp_path / "out").exists()
    assert predict_files(model, [str(clip), str(photos)], Outputs(tmp_path / "out"), QUIET, export=export) == 0
    assert "1 video left out" in capfd.readouterr().err


def test_a_broken_video_is_named_and_leaves_nothing(model, clip, photos, tmp_path, capfd):
    """The images beside it are predicted; a playlist that leads elsewhere is no video."""
    (photos / "broken.mp4").write_bytes(clip.read_bytes()[:2000])
    (photos / "list.mp4").write_text(f"#EXTM3U\n#EXTINF:1,\nfile://{clip}\n#EXT-X-ENDLIST\n")
    assert predict_files(model, [str(photos)], Outputs(tmp_path / "out"), QUIET) == 1
    errors = capfd.readouterr().err
    assert "broken.mp4" in errors
    assert "list.mp4" in errors
    assert "broken.mp4: damaged, or no video that can be read (Invalid data found when processing input)." in errors
    assert "Errno" not in errors
    assert len(list((tmp_path / "out/masks").rglob("*.png"))) == 3
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".mp4", ".tmp")]


def test_a_missing_extra_is_named_with_the_command_that_installs_it(model, clip, tmp_path, monkeypatch):
    """Before anything is written."""
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UserError, match=r"pip install 'oneway\[video\]'"):
        predict_files(model, [str(clip)], Outputs(tmp_path / "out"), QUIET)
    assert not (tmp_path / "out").exists()


def test_a_video_that_was_replaced_is_predicted_again(model, clip, tmp_path):
    """By --resume; one that is the same has its overlays already. With --frames, all are predicted again."""
    out = tmp_path / "out"

    def written(**how) -> int:
        predict_files(model, [str(clip)], Outputs(out, **how), QUIET, resume=True)
        return (out / "overlays/clip.mp4").stat().st_mtime_ns

    first = written()
    assert written() == first
    clip.write_bytes(clip.read_bytes() + bytes(8))
    os.utime(clip, (1e9, 1e9))
    assert written() > first
    written(frames=True)
    assert len(list((out / "masks/clip.frames").iterdir())) == 5


def test_frames_of_a_longer_video_of_that_name_go(model, clip, tmp_path):
    """They would be taken for those of the shorter one. What is no frame stays; edited ones are refused."""
    out = tmp_path / "out"
    predict_files(model, [str(clip)], Outputs(out, frames=True, facts=True), QUIET)
    folders = [out / kind / "clip.frames" for kind in ("masks", "overlays", "json")]
    for folder in folders:
        (first,) = folder.glob("000001.*")
        shutil.copy(first, folder / f"000006{first.suffix}")
    sixth = folders[0] / "000006.png"
    (folders[0] / "notes.txt").touch()

    predicted = sixth.read_bytes()
    with Image.open(sixth) as mask:
        edited = mask.copy()
    edited.save(sixth)
    with pytest.raises(UserError, match=r"000006\.png: edited since"):
        predict_files(model, [str(clip)], Outputs(out, frames=True), QUIET)

    sixth.write_bytes(predicted)
    predict_files(model, [str(clip)], Outputs(out, frames=True), QUIET)
    frames = {f"{number:06}" for number in range(1, 6)}
    assert [{path.stem for path in folder.iterdir()} for folder in folders] == [{*frames, "notes"}, frames, frames]
