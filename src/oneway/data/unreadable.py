"""Files that cannot be read: left out where the user says so, as long as they are few, and always reported."""

from __future__ import annotations

from oneway.common.terms import SplitName
from oneway.common.words import listed
from oneway.data.check.defects import Finding, Surveys, decoding_errors
from oneway.data.check.findings import NAMED, only_surveyed, refusal
from oneway.data.check.survey import Survey
from oneway.data.dataset import Listing

FLAG = "--data.skip-unreadable"
MOST = 0.01
"""Share of the images of a split that may be left out; where there are more, something else is wrong."""

WORDS: dict[SplitName, str] = {"train": "training", "val": "validation", "test": "test"}


def undecodable(surveys: Surveys) -> dict[str, Survey]:
    """Items whose image or mask cannot be decoded; not those whose labels can be decoded and mean nothing."""
    return {name: survey for name, survey in surveys.items() if survey.part in ("image", "mask")}


def within_limit(count: int, among: int) -> bool:
    """Whether at most 1 % of a split would be left out."""
    return count <= MOST * among


def refuse_too_many(listing: Listing, split: SplitName, left_out: Surveys, among: int) -> None:
    """Raises a UserError where more would be left out of a split than the limit allows."""
    if within_limit(len(left_out), among):
        return
    headline = (
        f"{listing.root}: {len(left_out)} of the {among} {WORDS[split]} images ({100 * len(left_out) / among:.1f} %) "
        f"cannot be read, and {FLAG} leaves out {100 * MOST:.0f} % at most."
    )
    way_out = f"Save them again, or remove them. Run `{listing.check_command}` to see all of it."
    raise refusal(headline, _findings(listing, left_out), way_out)


def left_out_note(listing: Listing, split: SplitName, left_out: Surveys, among: int) -> str:
    """The note about images that are left out of a split."""
    names = listed((finding.file for finding in _findings(listing, left_out)), NAMED)
    so = "" if split == "train" else f"; scores are of the other {among - len(left_out)}"
    verb = "is" if len(left_out) == 1 else "are"
    return (
        f"{len(left_out)} of the {among} {WORDS[split]} images cannot be read and {verb} left out ({FLAG}){so}: "
        f"{names}. `{listing.check_command}` says why."
    )


def _findings(listing: Listing, left_out: Surveys) -> list[Finding]:
    return list(decoding_errors(only_surveyed(listing, left_out), left_out))
