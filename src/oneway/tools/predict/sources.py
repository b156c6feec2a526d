"""Which files are meant by what a user types, and under which names their results are kept."""

from __future__ import annotations

import glob
import os
import shlex
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.run_files import is_contact_sheet, is_output
from oneway.common.words import command, counted, listed
from oneway.data.cache.archives import unzip_command
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.decode.video import VIDEO_SUFFIXES
from oneway.data.folder import FILE, find
from oneway.data.folder.names import IMAGES, MASK_FOLDERS
from oneway.data.folder.unused import labelled_apart
from oneway.data.folder.walk import PICTURES, choose_folder, kind_of

ARCHIVES = frozenset({".tar", ".zip", ".tgz", ".gz"})
KINDS = SUFFIXES | VIDEO_SUFFIXES | PICTURES | ARCHIVES  # of files about which there is something to say


@dataclass(frozen=True)
class Source:
    """An image or a video to predict."""

    path: Path
    """Of the file itself; a link to it may have another name."""

    name: str
    """The name of its results below their folder: no suffix, forward slashes. No two sources share one."""

    file_name: str
    """The name as it was given, below the folder of all: with a suffix. No two sources share one."""

    @property
    def is_video(self) -> bool:
        """Whether it is a video, going by its suffix."""
        return Path(self.file_name).suffix.lower() in VIDEO_SUFFIXES


@dataclass
class Skipped:
    """Files within folders and patterns that are not predicted."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Pictures that are not read, by suffix."""

    archives: list[Path] = field(default_factory=list)
    """Among them shards, which training alone can read."""

    masks: list[Path] = field(default_factory=list)

    links: list[Path] = field(default_factory=list)
    """To other folders, or to nothing."""

    unlisted: list[OSError] = field(default_factory=list)
    """Why some folders cannot be listed."""

    def messages(self) -> Iterator[str]:
        """A line for each kind."""
        if self.kinds:
            counts = listed(f"{count} of kind {suffix}" for suffix, count in sorted(self.kinds.items()))
            yield f"Not read, and left out: {counts}. Convert them to JPEG or PNG."
        if self.archives:
            what = counted(len(self.archives), "shard or archive", "shards or archives")
            yield f"Not read, and left out: {what} ({self.archives[0]} is the first). {_unpack(*self.archives)}"
        if self.links:
            which = f"{counted(len(self.links), 'link')} to folders or to nothing ({self.links[0]} is the first)"
            yield f"Not followed, and left out: {which}. Name the folders too, to predict what is in them."
        if self.unlisted:
            first, what = self.unlisted[0], counted(len(self.unlisted), "folder")
            yield f"Left out: {what} that cannot be listed ({first.filename} is the first: {first.strerror})."
        if self.masks:
            what = "1 file is a mask" if len(self.masks) == 1 else f"{len(self.masks)} files are masks"
            yield f"{what} of a data set, and left out ({self.masks[0]} is the first). To predict them, name the files."


def find_sources(
    paths: Sequence[str], out: Path, skipped: Skipped | None = None, unlabelled: bool = False
) -> list[Source]:
    """Images and videos among files, folders (with their subfolders) and patterns, each once.

    A link lends its name only where the file that it leads to is not among them itself. Within folders and patterns,
    neither results nor runs of ours count, nor masks of a data set that a folder is; which files of folders are left
    out is added to `skipped`. With `unlabelled`, images that have labels are left out too.

    Raises:
        UserError: A path leads to nothing, or to a result in `out`, which a prediction could overwrite; or `unlabelled`
            is asked of a path that is no folder of a data set, or where every image has labels.
    """
    if not paths:
        raise UserError("No image given. Name files, folders or patterns: oneway predict RUN photos 'more/**/*.jpg'")
    if "" in paths:
        raise UserError("One of the paths is empty, as by a variable that is not set. For all of this folder, write .")
    found: dict[Path, tuple[Path, Path]] = {}
    skipped = skipped or Skipped()
    matches = [(path.resolve(), root, path) for text in paths for root, path in _matches(text, out, skipped)]
    files = {target for target, _, path in matches if not path.is_symlink()}
    for target, root, path in matches:
        if target not in files or not path.is_symlink():
            found.setdefault(target, (root, path.relative_to(root)))
    named = {Path(text).resolve() for text in paths}
    skipped.links = [link for link in skipped.links if not _leads_into(link, named)]
    for labelled in (_labelled(Path(text)) for text in paths if unlabelled):
        found = {path: name for path, name in found.items() if path not in labelled}
    if not found:
        raise UserError(f"--unlabelled: every image of {listed(paths)} has labels. Leave it out to predict them.")
    return [Source(path, *names) for path, names in zip(found, _names(found), strict=True)]


def _matches(text: str, out: Path, skipped: Skipped) -> list[tuple[Path, Path]]:
    """Pairs of a folder and a file below it; a UserError where there is none, or one lies where results go."""
    path = Path(text)
    if path.is_dir() and not _below(path, out):
        files = _in_folder(path, out, skipped)
    elif path.exists() or not glob.has_magic(text):
        files = [_named_file(text)]
    else:
        files = _by_pattern(text, skipped)
    for _, file in files:
        if _below(file, out):
            raise UserError(f"{file}: lies in {out}, where results go. Choose another folder with --out.")
    return files


def _in_folder(folder: Path, out: Path, skipped: Skipped) -> list[tuple[Path, Path]]:
    """What there is to predict in a folder and its subfolders; neither results nor masks of a data set."""
    is_mask = _masks(folder)
    inside = [file for file in _wanted(_below_folder(folder, skipped), folder, skipped) if not _below(file, out)]
    masks = {file for file in inside if is_mask(file)}
    files = [(folder, file) for file in inside if file not in masks]
    skipped.masks += sorted(masks)
    if not files and (skipped.kinds or skipped.archives or skipped.links or skipped.unlisted):
        raise UserError(f"{folder}: no image or video in this folder. {next(skipped.messages())}")
    if not files:
        raise UserError(f"{folder}: no image or video in this folder, apart from results and masks.")
    return files


def _named_file(text: str) -> tuple[Path, Path]:
    """A file that is named by itself, whatever it is but an archive."""
    path = Path(text)
    if "://" in text:
        saved = command("ffmpeg", "-i", text, "-t", 60, "saved.mp4")
        raise UserError(f"{text}: an address, and files are predicted. Save it first; a minute of a stream: {saved}")
    if not path.exists():
        raise UserError(f"{path}: no such file or folder.")
    if kind_of(path) in ARCHIVES and path.is_file():
        raise UserError(f"{path}: shards and archives are not predicted. {_unpack(path)}")
    return path.parent, path


def _by_pattern(text: str, skipped: Skipped) -> list[tuple[Path, Path]]:
    """What there is to predict among the files that a pattern matches."""
    pattern = Path(text)
    root = next(folder for folder in pattern.parents if not glob.has_magic(str(folder)))  # above the first wildcard
    passed = Skipped()
    files = [(root, file) for file in _wanted(_matching(root, *pattern.relative_to(root).parts), root, passed)]
    if not files and passed.archives:
        raise UserError(f"{text}: no image or video matches. {next(passed.messages())}")
    if not files:
        raise UserError(f"{text}: no image or video matches, apart from results.")
    skipped.kinds += passed.kinds
    skipped.archives += passed.archives
    return files


def _below_folder(folder: Path, skipped: Skipped) -> Iterator[Path]:
    """All that is not hidden in a folder and its subfolders. Links to folders are among it, and not followed."""
    for here, folders, files in os.walk(folder, onerror=skipped.unlisted.append):
        folders[:] = [name for name in folders if not hidden(Path(name))]
        yield from (Path(here, name) for name in (*folders, *files))


def _matching(folder: Path, part: str = "", *rest: str) -> Iterator[Path]:
    """What a pattern matches below a folder, as by `glob`, which would follow links in circles for hours."""
    if not part:
        yield folder
    elif part == "**":
        for inner in _folders(folder):
            yield from _matching(inner, *(rest or "*"))
    else:
        for name in glob.glob(part, root_dir=folder):
            yield from _matching(folder / name, *rest)


def _folders(top: Path) -> Iterator[Path]:
    """A folder and all below that are not hidden, each once: by a link only where no other way leads to it."""
    waiting, seen = deque([top]), set()
    while waiting:
        folder = waiting.popleft()
        if (target := folder.resolve()) in seen:
            continue
        seen.add(target)
        yield folder
        with suppress(OSError):  # as `glob` does, of what may not be listed
            for inner in sorted(inner for inner in folder.iterdir() if inner.is_dir() and not hidden(Path(inner.name))):
                (waiting.append if inner.is_symlink() else waiting.appendleft)(inner)


def _leads_into(link: Path, folders: set[Path]) -> bool:
    """Whether a link leads to one of some folders or below it, where its images are found without it."""
    target = Path(os.path.realpath(link))  # `resolve` raises an error where links lead in a circle
    above = next((place for place in (target, *target.parents) if place in folders), None)
    return above is not None and target.is_dir() and not hidden(target.relative_to(above))


def _wanted(paths: Iterable[Path], root: Path, skipped: Skipped) -> list[Path]:
    """Images and videos among paths below a folder, in order of name: for all to see, and nothing we wrote."""
    ours = cache(is_output)

    def wanted(path: Path) -> bool:
        suffix = kind_of(path)
        leads_nowhere = path.is_symlink() and not path.is_file()
        if not (leads_nowhere or (suffix in KINDS and path.is_file())) or hidden(path.relative_to(root)):
            return False
        if is_contact_sheet(path) or any(ours(folder) for folder in path.parents if folder.is_relative_to(root)):
            return False
        if leads_nowhere:
            skipped.links.append(path)
            return False
        if suffix in ARCHIVES:
            skipped.archives.append(path)
        elif suffix in PICTURES:
            skipped.kinds[suffix] += 1
        return suffix not in PICTURES | ARCHIVES

    return list(filter(wanted, sorted(paths)))


def _unpack(first: Path, *others: Path) -> str:
    """How to come by the files in archives."""
    tar = shlex.quote(str(first))
    if first.suffix.lower() == ".zip":
        return f"Unpack {'each' if others else 'it'}, and give the folder: {unzip_command(first)}"
    if not others:
        return f"Unpack it, and give the folder: mkdir photos && tar -xf {tar} -C photos"
    every = f"{shlex.quote(str(first.parent))}/*{first.suffix}"
    return f'Unpack them, and give the folder: mkdir photos; for f in {every}; do tar -xf "$f" -C photos; done'


def _masks(folder: Path) -> Callable[[Path], bool]:
    """Whether a file below a folder is a mask: of a data set that it is, or in a folder that lies beside its images."""
    pairs: set[Path] = set()
    folders: list[Path] = []
    with suppress(UserError):  # one that cannot be trained on may still hold photos
        found, described = find(folder), (folder / FILE).is_file()
        folders = [(folder / part.masks).resolve() for part in found.description.parts if part.masks]
        files = [(item.image, item.mask) for item in (*found.train, *found.val, *found.test) if item.mask]
        files += [pair for apart in labelled_apart(found).values() for pair in apart]
        # Unless someone says so, a.png beside a.jpg may be another photo.
        pairs = {mask.resolve() for image, mask in files if described or mask.with_suffix("") != image.with_suffix("")}

    @cache
    def beside_images(place: Path) -> bool:
        return place.name.lower() in MASK_FOLDERS and any(
            choose_folder(place.parent, ".", (name,), with_images=True) for name in IMAGES
        )

    def is_mask(file: Path) -> bool:
        target = file.resolve()
        above = [place for place in file.parents if place != folder and place.is_relative_to(folder)]
        return (
            target in pairs or any(target.is_relative_to(place) for place in folders) or any(map(beside_images, above))
        )

    return is_mask


def _labelled(folder: Path) -> set[Path]:
    """The images with labels of a data set, and those of test sets beside it."""
    labelled: set[Path] = set()
    if folder.is_dir():
        with suppress(UserError):
            found = find(folder)
            labelled = {item.image.resolve() for item in (*found.train, *found.val, *found.test) if item.labelled}
            labelled |= {image.resolve() for pairs in labelled_apart(found).values() for image, _ in pairs}
    if not labelled:
        raise UserError(f"--unlabelled: no labels are found in {folder}. Give the folder that holds images and masks.")
    return labelled


def _below(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _names(found: dict[Path, tuple[Path, Path]]) -> list[tuple[str, str]]:
    """Names and file names as short as can be that still differ; names differ in more than upper and lower case."""
    choices = [_choices(path, *place) for path, place in found.items()]
    length = [0] * len(choices)
    while True:
        names = [forms[at] for forms, at in zip(choices, length, strict=True)]
        files = [forms[max(at, 1)] for forms, at in zip(choices, length, strict=True)]
        count, count_files = Counter(name.casefold() for name in names), Counter(files)
        clashing = [index for index, name in enumerate(names) if count[name.casefold()] > 1]
        either = {*clashing, *(index for index, file in enumerate(files) if count_files[file] > 1)}
        longer = [index for index in either if length[index] < len(choices[index]) - 1]
        if not longer:
            # What differs in nothing but case gets a number behind it.
            numbered = [f"{name}-{clashing.index(at) + 1}" if at in clashing else name for at, name in enumerate(names)]
            return list(zip(numbered, files, strict=True))
        for index in longer:
            length[index] += 1


def _choices(path: Path, root: Path, relative: Path) -> tuple[str, ...]:
    """Names of one source, the shortest first."""
    forms = (relative.with_suffix(""), relative, root.resolve().name / relative, path.relative_to(path.anchor))
    return tuple(form.as_posix() for form in forms)
