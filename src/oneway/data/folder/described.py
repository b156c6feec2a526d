"""A folder with its classes: found, inferred where no description gives them, and named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oneway.common.errors import UserError, unknown
from oneway.common.terms import IGNORE
from oneway.data.dataset import NO_RUN, Colour, Known
from oneway.data.folder.another import name_another
from oneway.data.folder.class_table import find_legend, find_table
from oneway.data.folder.classes import merge
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found, find
from oneway.data.folder.formats.interface import renamed
from oneway.data.folder.infer import infer
from oneway.data.folder.run_classes import by_values, how_read


def describe(root: Path, unlabelled: Path | None = None, known: Known = NO_RUN) -> Found:
    """Find the files of a folder, and infer the classes from all masks where no description gives them.

    Args:
        root: The data folder; nothing outside is read.
        unlabelled: Another folder, all of whose images join the training set without labels.
        known: What a run has decided.

    Raises:
        UserError: A folder is missing or without an image, or its masks hold no classes; says why, and the way out.
    """
    found = find(root, unlabelled)
    masks = [item.mask for item in (*found.train, *found.val) if item.mask]
    if not masks and not found.annotations and (another := name_another(root)):
        raise UserError(f"{root}: none of its images has labels. {another}")
    if masks and not found.annotations and found.description.classes is None:
        found = _with_inferred_classes(found, masks, known)
    return _with_merged_classes(found, known)


def _with_inferred_classes(found: Found, masks: Sequence[Path], known: Known) -> Found:
    """The same, with the classes of its masks.

    They have the names in a table beside the images; else those of a run whose masks hold the same values; else those
    in another file that lists their colours; else numbers.
    """
    given = found.description
    table = find_table(found.root, dict.fromkeys((".", *(part.images for part in given.parts))))
    inferred, read_as = infer(masks, given.ignore, table), ""
    if table is None and known.classes and (of_run := by_values(inferred.classes, known)):
        read_as = how_read(inferred.classes, of_run)
        alike = of_run.names == inferred.classes.names  # else some do not occur here, or have had other names
        inferred = replace(inferred, classes=of_run, colours=inferred.colours if alike else None, named=True)
    if not inferred.named and (legend := find_legend(found.root, inferred.classes.table)):
        inferred = replace(inferred, classes=legend.classes, legend=legend.path.name)
    classes = inferred.classes
    ignore = None if classes.coloured or IGNORE in classes.table else (IGNORE,)
    changes = {
        "classes": classes,
        "colours": inferred.colours if given.colours is None else given.colours,
        "ignore": given.ignore if given.ignore is not None else inferred.ignore or ignore,
    }
    return replace(found, description=given.model_copy(update=changes), inferred=inferred, read_as=read_as)


def _with_merged_classes(found: Found, known: Known) -> Found:
    """The same, with one class for those that the description merges."""
    description, into = found.description, found.description.merged_into
    if not into or (found.inferred and not found.inferred.named):  # the latter are refused
        return found
    names = list(dict.fromkeys((*description.names, *(name for one in found.annotations for name in one.names))))
    if not known.classes and (lacking := [name for name in into if name not in names]):  # a run may have merged them
        raise UserError(f"{found.root / FILE}: merge: {unknown('class', lacking[0], names)}")
    changes: dict[str, object] = {}
    if classes := description.classes:
        shown: dict[str, Colour] = {}
        for name, colour in zip(description.names, description.palette, strict=True):
            shown[into.get(name, name)] = colour if name not in into else shown.get(into[name], colour)
        changes = {"classes": merge(classes, into), "colours": tuple(shown.values())}
    annotations, of_test = (tuple(renamed(one, into) for one in some) for some in (found.annotations, found.of_test))
    return replace(found, description=description.model_copy(update=changes), annotations=annotations, of_test=of_test)
