"""The verb `check`: checks a data set, prints what it found as text or JSON, and draws the contact sheet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from textwrap import indent

from rich.console import Console
from rich.text import Text

from oneway.common.console import print_result
from oneway.common.errors import UserError
from oneway.common.words import say
from oneway.config import Data
from oneway.data.cache.archives import unzip_command
from oneway.data.cache.unpack import as_folder, as_images
from oneway.data.check.contact_sheet import write_contact_sheet
from oneway.data.check.pool import check_pool
from oneway.data.check.result import check_data
from oneway.data.check.rules.interface import WHOLE_SET, Finding, relative
from oneway.data.check.text import findings_text, summary
from oneway.data.dataset import Listing
from oneway.data.folder import FILE, Found, describe, list_described
from oneway.data.folder.yaml_text import classes_to_yaml, to_yaml
from oneway.data.pictures import is_marked
from oneway.data.pool import is_pool


def check_folder(
    root: Path,
    console: Console,
    *,
    unlabelled: Path | str | None = None,
    holdout: float | None = None,
    out: Path | None = None,
    save: bool = False,
    as_json: bool = False,
) -> int:
    """Check a folder of images and masks; the exit status is 1 if there is an error in it.

    Args:
        root: The folder, or an archive of it.
        console: Where to print what was found.
        unlabelled: A further folder, of images without masks, a video, or a pool of them.
        holdout: Share of the labelled images that would validate, where there is no validation set; see `Data`.
        out: The contact sheet; see `sheet_path`.
        save: Write what was inferred about the folder into it, as dataset.yaml.
        as_json: Print JSON.
    """
    by_hand = unzip_command(root) if root.is_file() else None
    if save and by_hand:
        raise UserError(f"{root}: an archive, into which nothing is written. Unpack it, and save there: {by_hand}")
    if save and (root / FILE).exists():
        raise UserError(f"{root / FILE}: exists already. Remove it to have it written anew, or leave out --save.")
    progress, defaults = Console(quiet=True) if as_json else console, Data()
    try:
        root = Path(as_folder(root, progress, defaults))
        unlabelled = unlabelled and as_images(unlabelled, progress, defaults)
        pool = unlabelled if unlabelled is not None and is_pool(unlabelled) else None
        further = None if unlabelled is None or pool is not None else Path(unlabelled)
        folder = describe(root, further)
    except UserError as error:
        return print_refusal(root, error, console, as_json)
    file, share = root / FILE, defaults.holdout if holdout is None else holdout
    inferred = not file.exists()
    written = save and _makes_a_set(folder, share, defaults.seed)
    if written:
        with _writing(file):
            file.write_text(to_yaml(folder.description), encoding="utf-8")
        folder = describe(root, further)  # as it is read from now on
    known = [
        Finding("warning", "Files that are not used, or do not pair up", relative(problem.file, root), problem.message)
        for problem in folder.problems
    ]
    listing = None
    try:
        listing = list_described(replace(folder, problems=()), share, defaults.seed)
    except UserError as error:
        status = print_refusal(root, error, console, as_json, known)
    else:
        status = check_listing(listing, console, known=known, out=out, as_json=as_json, pool=pool)
    if as_json:
        return status
    if save:
        not_written = f"Not written: {file}. Nothing that can be trained on was understood."
        say(console, f"Written: {file}" if written else not_written)
    elif listing or not inferred or _makes_a_set(folder, share, defaults.seed):
        _advise(folder, file, inferred, by_hand, console)
    return status


def _advise(folder: Found, file: Path, inferred: bool, by_hand: str | None, console: Console) -> None:
    """Print a description that would be saved, or what one that is there could add."""
    if inferred:
        writes = f"unpack the archive ({by_hand}), and `--save` writes" if by_hand else "`--save` writes"
        say(console, f"There is no {FILE}; {writes} this one, which you can edit:")
        say(console, indent(to_yaml(folder.description).rstrip(), "    "))
    elif folder.inferred and (folder.inferred.numbered or not folder.inferred.named):
        say(console, f"To name the classes, put these lines into {file}, and edit them:")
        say(console, indent(classes_to_yaml(folder.inferred.classes), "    "))


def _makes_a_set(folder: Found, holdout: float, seed: int) -> bool:
    """Whether what was understood makes a data set, once it is written down with names for all classes."""
    try:
        list_described(replace(folder, inferred=None), holdout, seed, reduction=1)
    except UserError:
        return False
    return True


def _refusal(root: Path, error: UserError) -> Finding:
    """What keeps a folder from being a data set, about the file that the error begins with."""
    place, _, message = str(error).partition(": ")
    inside = message and Path(place).is_relative_to(root) and Path(place) != root
    file, message = (relative(Path(place), root), message) if inside else (WHOLE_SET, str(error))
    return Finding("error", "Not a data set yet", file, message)


def print_refusal(root: Path, error: UserError, console: Console, as_json: bool, known: Sequence[Finding] = ()) -> int:
    """Print what keeps a folder from being a data set, and what else is known; the exit status."""
    findings = [_refusal(root, error), *known]
    if as_json:
        tree = {"data": str(root), "findings": [asdict(finding) for finding in findings]}
        print_result(json.dumps(tree, indent=1, allow_nan=False))
    else:
        console.print(findings_text(findings), highlight=False)
    return 1


def check_listing(
    listing: Listing,
    console: Console,
    *,
    known: Iterable[Finding] = (),
    out: Path | None,
    as_json: bool,
    pool: Path | str | None,
) -> int:
    """Check a listed data set of any kind, and a pool beside it; the exit status is 1 if there is an error in it."""
    sheet, progress = sheet_path(listing.root, out, as_json), Console(quiet=True) if as_json else console
    check, numbers = check_data(listing, progress, known), None
    if pool is not None:
        try:
            check, numbers = check_pool(check, pool, progress)
        except UserError as error:
            unusable = Finding("error", "A pool that cannot be used", WHOLE_SET, str(error))
            check = replace(check, findings=(unusable, *check.findings))
    if not as_json:
        console.print(summary(check), Text(), findings_text(check.findings), highlight=False)
    where = "inside the data unless asked for"
    if sheet is not None:
        try:
            with _writing(sheet):
                write_contact_sheet(check, sheet)
        except UserError as error:
            if out is not None:
                raise
            sheet, where = None, f"here ({str(error).rstrip('.')})"  # nobody asked for it, and the data are judged
    if as_json:
        tree = check.to_json() | ({"pool": numbers} if numbers else {}) | {"sheet": str(sheet) if sheet else None}
        print_result(json.dumps(tree, indent=1, allow_nan=False))
    else:
        say(console, f"Contact sheet: {sheet or f'none {where}; --out FILE.png draws it.'}")
    return int(check.has_errors)


def sheet_path(root: Path, out: Path | None, as_json: bool) -> Path | None:
    """The path of the contact sheet: `out`, or else one in the current folder, if that is not part of the data.

    There it replaces a contact sheet and nothing else. With `as_json`, none is drawn unless `out` is given.
    """
    if out is None:
        if as_json or Path.cwd().is_relative_to(root.resolve()):
            return None
        stem = f"check-{root.resolve().name}"
        names = chain([Path(f"{stem}.png")], (Path(f"{stem}-{number}.png") for number in count(2)))
        return next(path for path in names if not os.path.lexists(path) or is_marked(path, "check"))
    if out.suffix.lower() != ".png":
        raise UserError(f"{out}: the contact sheet is a PNG; let the name end with .png.")
    if out.exists() and out.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{out}: is there already, among the data. Choose another file for the contact sheet.")
    return out


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}).") from error
