"""What is hidden stays so, for every reader by the same rule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

from oneway.data.folder import find
from oneway.data.published import with_further_images
from oneway.data.published.camvid import list_camvid
from oneway.tools.predict.sources import find_sources

HIDDEN = (".a.png", ".thumbnails/a.png", "deep/.git/x/a.png", "__MACOSX/a.png")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two images to see, in a folder that is hidden itself, and four that are not for us."""
    folder = tmp_path / ".cache" / "photos"
    for name in ("b.png", "deep/c.png", *HIDDEN):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(folder / name)
    return folder


def test_every_reader_passes_over_the_same_files(folder, tmp_path, monkeypatch):
    """A folder to train on, one of further images, one to predict, and a pattern."""
    camvid = tmp_path / "camvid"
    for place in ("train", "trainannot", "val", "valannot"):
        (camvid / place).mkdir(parents=True)
        Image.new("L", (8, 6)).save(camvid / place / "f.png")
    monkeypatch.chdir(folder)

    def relative(paths: list[Path]) -> set[str]:
        return {Path(os.path.relpath(path, folder.resolve())).as_posix() for path in paths}

    readers = {
        "folder": [item.image for item in find(folder).train],
        "further images": [
            item.image for item in with_further_images(list_camvid(camvid), folder).train if not item.mask
        ],
        "predict": [source.path for source in find_sources([str(folder)], tmp_path / "out")],
        "pattern": [source.path for source in find_sources([f"{folder}/**/*.png"], tmp_path / "out")],
        "pattern here": [source.path for source in find_sources(["**/*.png"], tmp_path / "out")],
    }
    for reader, paths in readers.items():
        assert relative(paths) == {"b.png", "deep/c.png"}, reader


def test_a_hidden_file_is_read_where_the_user_names_it(folder, tmp_path):
    """By its path, or by that of its folder."""
    for name in (".a.png", ".thumbnails"):
        (source,) = find_sources([str(folder / name)], tmp_path / "out")
        assert source.path.name in (".a.png", "a.png")
