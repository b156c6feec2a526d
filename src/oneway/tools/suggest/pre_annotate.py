"""The images to label next, with what a model makes of them, in a folder that an annotation tool imports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rich.console import Console

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.progress import progress_bar
from oneway.common.run_files import SUGGESTIONS
from oneway.runs.atomic import write_atomically
from oneway.tools.annotations import AnnotationSettings
from oneway.tools.predict import load
from oneway.tools.suggest.scores import Candidate

MOST_BYTES = 2**31  # of an image file


def refuse_occupied(folder: Path) -> None:
    """A folder with other content is refused: labels that someone has corrected there would be lost."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        there = "holds earlier suggestions, perhaps corrected ones" if (folder / SUGGESTIONS).is_file() else "exists"
        raise UserError(f"{folder}: {there}, and nothing is overwritten. Choose another folder with --out.")


def refuse_without_files(images: Sequence[Candidate], run: Path) -> None:
    """An annotation tool can only show what is in a file."""
    if any(image.path is None for image in images):
        raise UserError(f"{run}: its images are made by code, so no tool can show them. Give a folder with --data DIR.")


def pre_annotate(
    run: Path,
    images: Sequence[Candidate],
    settings: AnnotationSettings,
    folder: Path,
    console: Console,
    factory: str | None = None,
    device: str = "auto",
) -> str:
    """Copies images, each of which has a file, and writes a run's predictions for them.

    Returns a sentence about what there is.
    """
    model = load(run, device, factory)
    export = settings.export(model, folder)
    names = [PurePosixPath(*(part for part in Path(image.name).parts if part not in ("..", "/"))) for image in images]
    count = Counter(name.with_suffix("").as_posix().casefold() for name in names)
    with progress_bar(console, f"Predicting for {settings.to}", len(images)) as advance:
        for image, name in zip(images, names, strict=True):
            assert image.path is not None
            copy = export.place((export.writer.images / name).as_posix())
            write_atomically(copy, read_bounded(image.path, MOST_BYTES))
            stem = name.with_suffix("") if count[name.with_suffix("").as_posix().casefold()] == 1 else name
            export.add(copy.absolute(), name.as_posix(), stem.as_posix(), model.predict(image.path))
            advance()
    return export.finish()
