"""Which mask belongs to which image: by their names, but for the suffix and for words such as `_mask`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from oneway.data.decode.images import SUFFIXES
from oneway.data.folder.layout import BELOW
from oneway.data.folder.names import IMAGE_MARKERS, IMAGE_PREFIXES, MARKERS, PREFIXES
from oneway.data.folder.walk import Problem, stem_below

LOSSY = (".jpg", ".jpeg")  # what has a prefix such as `mask_` and is stored so may be a photograph of one

Stems = dict[str, list[Path]]  # files by their path below a folder, without the suffix
Strip = Callable[[str], str]


def stems(files: Iterable[Path], folder: Path) -> Stems:
    """Files by what an image and its mask share: their path below a folder, without the suffix."""
    found: Stems = defaultdict(list)
    for path in files:
        found[stem_below(path, folder)].append(path)
    return found


def stems_below(files: Iterable[Path], folder: Path, names: Sequence[str]) -> Stems:
    """Files in subfolders of these names, without those: `a/images/1.jpg` and `a/masks/1.png` are both `a/1`."""
    stems: Stems = defaultdict(list)
    for path in files:
        if (found := BELOW.fullmatch(stem_below(path, folder))) and found[2].lower() in names:
            stems[f"{found[1] or '.'}/{found[3]}"].append(path)
    return stems


def unmarked(stem: str, markers: Sequence[str] = MARKERS) -> str:
    """The name of a mask without what it may have in addition to that of its image, at its end."""
    return next((stem[: -len(marker)] for marker in markers if stem.lower().endswith(marker)), stem)


def unprefixed(stem: str, prefixes: Sequence[str] = PREFIXES) -> str:
    """The name of a mask without what it may have in addition at its beginning; its folders stay."""
    start = stem.rfind("/") + 1
    name = stem[start:].lower()
    return next((stem[:start] + stem[start + len(word) :] for word in prefixes if name.startswith(word)), stem)


def unsuffixed(stem: str) -> str:
    """The name of a mask without the suffix of its image: `X` for `X.jpg.png`."""
    return unmarked(stem, sorted(SUFFIXES))


WAYS: tuple[tuple[Strip, Strip], ...] = (
    (unmarked, partial(unmarked, markers=IMAGE_MARKERS)),
    (unprefixed, partial(unprefixed, prefixes=IMAGE_PREFIXES)),
    (unsuffixed, str),
)
"""How the names of masks and of images are stripped; a further way only where those before it pair nothing."""


def pair_masks(images: Stems, drawn: Stems) -> Stems:
    """Masks by the names of their images; those without an image by their own."""
    answers = (_pair(images, drawn, *way) for way in WAYS)
    fitting = (masks for masks in answers if not masks.keys().isdisjoint(images))
    return next(fitting, None) or _pair(images, drawn, *WAYS[0])


def pair_flat_masks(images: Stems, drawn: Stems) -> Stems:
    """As `pair_masks`, for images in subfolders and masks in none: by bare names, if no two images share one."""
    bare = {PurePosixPath(stem).name: stem for stem in images}
    if len(bare) < len(images) or any("/" in stem for stem in drawn):
        return pair_masks(images, drawn)
    masks = pair_masks({name: images[stem] for name, stem in bare.items()}, drawn)
    return {bare.get(name, name): paths for name, paths in masks.items()}


def pair_beside(files: Stems) -> tuple[Stems, Stems]:
    """Images and masks in one folder: `X.jpg` with `X.png`, or `X.png` with `X_mask.png` or `mask_X.png`."""
    answers = (_beside(files, *way) for way in WAYS)
    fitting = ((images, masks) for images, masks in answers if masks)
    return next(fitting, None) or _beside(files, *WAYS[0])


def _pair(images: Stems, drawn: Stems, strip: Strip, strip_image: Strip) -> Stems:
    masks: Stems = defaultdict(list)
    shared = _shared(images, strip_image)
    for stem, paths in drawn.items():
        masks[_image_of(stem, images, shared, strip)] += paths
    return masks


def _beside(files: Stems, strip: Strip, strip_image: Strip) -> tuple[Stems, Stems]:
    images: Stems = defaultdict(list)
    masks: Stems = defaultdict(list)
    shared = _shared(files, strip_image)
    for stem, paths in files.items():
        pngs = [path for path in paths if path.suffix.lower() == ".png"]
        marked = strip(stem) != stem and not (strip is unprefixed and paths[0].suffix.lower() in LOSSY)
        if marked and (image := _image_of(strip(stem), files, shared, strip)) in files:
            masks[image] += paths
        elif 0 < len(pngs) < len(paths):
            images[stem] += [path for path in paths if path not in pngs]
            masks[stem] += pngs
        else:
            images[stem] += paths
    return images, masks


def _image_of(stem: str, images: Collection[str], shared: Mapping[str, str], strip: Strip) -> str:
    """The name of the image to which a mask of this name belongs; its own where there is none.

    A mask may have a word in addition, which `strip` takes away; images that have one are in `shared`, by what is left.
    """
    names = (stem, strip(stem), shared.get(stem), shared.get(strip(stem)))
    return next((name for name in names if name is not None and name in images), stem)


def _shared(stems: Iterable[str], strip: Strip) -> dict[str, str]:
    return {strip(stem): stem for stem in stems if strip(stem) != stem}


def mismatches(images: Stems, masks: Stems, predicted: Collection[Path]) -> Iterator[Problem]:
    """What is wrong with files that pair up with none, or with several; some of the masks are predictions."""
    for first, *others in images.values():
        for path in others:
            yield Problem(path, f"left out: but for the suffix it has the name of {first.name}. Rename or remove it.")
    names = {PurePosixPath(stem).name for stem in images}
    misplaced: dict[Path, int] = defaultdict(int)
    longer: Stems = defaultdict(list)
    for stem, (first, *others) in masks.items():
        for path in others:
            made = "a prediction, and " if path in predicted and first not in predicted else ""
            yield Problem(path, f"left out: {made}{first.name} is the mask of the same image. Remove one of them.")
        if stem in images:
            continue
        if {name := PurePosixPath(stem).name, unmarked(name)} & names:
            misplaced[first.parent] += 1
        elif image := _beginning_of(stem, images):
            longer[image].append(first)
        else:
            yield Problem(first, "no image has the name of this mask. Add the image, or remove the mask.")
    for stem, paths in longer.items():
        yield from _with_longer_names(paths, images[stem][0], stem, stem in masks)
    for folder, count in misplaced.items():
        yield Problem(
            folder,
            f"{count} masks here have the names of images elsewhere. Give both the same subfolders; where masks show "
            "one class each, paint those of an image into one, with a number for each class.",
        )


def _beginning_of(stem: str, images: Stems) -> str | None:
    """The longest name of an image that the name of a mask begins with, up to a sign such as `_`."""
    start = stem.rfind("/") + 1
    ends = (end for end in range(len(stem) - 1, start, -1) if not stem[end].isalnum())
    return next((stem[:end] for end in ends if stem[:end] in images), None)


def _with_longer_names(masks: Sequence[Path], image: Path, stem: str, has_mask: bool) -> Iterator[Problem]:
    """Masks whose names begin with that of one image: it may be theirs."""
    name = f"{PurePosixPath(stem).name}{masks[0].suffix}"
    alone = len(masks) == 1 and not has_mask
    way_out = f"rename it to {name}" if alone else f"paint all masks of this image into one, {name}"
    for path in masks:
        yield Problem(
            path, f"no image has the name of this mask. It seems to be that of the image {image.name}: {way_out}."
        )
