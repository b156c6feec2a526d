"""Files that cannot be read: left out where the user says so, as long as they are few, and never unseen."""

from __future__ import annotations

from oneway.data.check import in_words, surveyed
from oneway.data.check.defects import Finding, Surveys, unusable
from oneway.data.check.survey import Survey
from oneway.data.dataset import Listing
from oneway.errors import UserError
from oneway.methods import SplitName

FLAG = "--data.skip-unreadable"
MOST = 0.01
"""Share of the images of a split that may be left out: where there are more, it is not the files that are wrong."""

NAMED = 5
"""Files that a message names."""

WORDS: dict[SplitName, str] = {"train": "training", "val": "validation", "test": "test"}


def unreadable(surveys: Surveys) -> dict[str, Survey]:
    """Items whose image or mask cannot be decoded; labels that can be, and mean nothing, are a mistake to mend."""
    return {name: survey for name, survey in surveys.items() if survey.part in ("image", "mask")}


def few(count: int, among: int) -> bool:
    """Whether so many may be left out."""
    return 0 < count <= MOST * among


def refuse_many(listing: Listing, split: SplitName, left_out: Surveys, among: int) -> None:
    """Raises a UserError where more are to be left out than may be."""
    if not left_out or few(len(left_out), among):
        return
    findings = _findings(listing, left_out)
    more = [f"  … and {len(findings) - NAMED} more"] if len(findings) > NAMED else []
    lines = [
        f"{listing.root}: {len(left_out)} of the {among} {WORDS[split]} images ({100 * len(left_out) / among:.1f} %) "
        f"cannot be read, and {FLAG} leaves out {100 * MOST:.0f} % at most.",
        *(f"  {in_words(finding)}" for finding in findings[:NAMED]),
        *more,
        f"Save them again, or remove them. Run `{listing.check_command}` to see all of it.",
    ]
    raise UserError("\n".join(lines))


def remark(listing: Listing, split: SplitName, left_out: Surveys, among: int) -> str:
    """What is said about images that are left out, before anything is made of the others."""
    names = [finding.file for finding in _findings(listing, left_out)]
    named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    so = "" if split == "train" else f"; scores are of the other {among - len(left_out)}"
    verb = "is" if len(left_out) == 1 else "are"
    return (
        f"{len(left_out)} of the {among} {WORDS[split]} images cannot be read and {verb} left out ({FLAG}){so}: "
        f"{named}. `{listing.check_command}` says why."
    )


def _findings(listing: Listing, surveys: Surveys) -> list[Finding]:
    return list(unusable(surveyed(listing, surveys), surveys))
