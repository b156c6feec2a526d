"""Findings about a data set: made by applying all rules to it, told in lines, and raised where they are errors.

Files that cannot be read are left out where the user says so, as long as they are few, and always reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from oneway.common.errors import UserError
from oneway.common.terms import SplitName
from oneway.common.words import counted, listed
from oneway.config import Data
from oneway.data.check.rules import RULES, WHOLE_SET, Finding, Surveys, decoding_errors, unreadable_without_labels
from oneway.data.dataset import Listing

NAMED = 5  # files that a message names
SKIP, UNLABELLED = "--data.skip-unreadable", "--data.unreadable"
MOST_LEFT_OUT = 0.01  # share of the images of a split; where there are more, something else is wrong
WORDS: dict[SplitName, str] = {"train": "training", "val": "validation", "test": "test"}


def apply_rules(listing: Listing, surveys: Surveys) -> list[Finding]:
    """What all rules find in the items that have been surveyed, errors first."""
    train, val, test = (tuple(item for item in items if item.name in surveys) for items in listing.splits.values())
    seen = replace(listing, train=train, val=val, test=test)
    return errors_first(finding for rule in RULES for finding in rule(seen, surveys))


def refuse_errors(findings: Iterable[Finding], listing: Listing, where: str = "data", way_out: str = "") -> None:
    """Raise a UserError with the first errors, if there are any; `where` names the part of the data they are in."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        headline = f"{listing.root}: {counted(len(errors), 'error')} in the {where}."
        raise refusal(headline, errors, f"Run `{listing.check_command}` to see all of it. {way_out}".rstrip())


def refusal(headline: str, findings: Sequence[Finding], way_out: str) -> UserError:
    """The error with the first findings, one on each line, and how many more there are."""
    lines = [headline, *(f"  {words}" for words in in_few_words(findings[:NAMED]))]
    if len(findings) > NAMED:
        lines.append(f"  … and {len(findings) - NAMED} more")
    return UserError("\n".join([*lines, way_out]))


def summarise(findings: Iterable[Finding]) -> list[str]:
    """One line for each kind of finding: how many there are, and the first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    return [
        f"{kind}{f' ({len(found)})' if len(found) > 1 else ''}: {in_words(found[0])}{', …' if len(found) > 1 else ''}"
        for kind, found in kinds.items()
    ]


def in_words(finding: Finding) -> str:
    """A finding as one line: its file, and the message."""
    return finding.message if finding.file == WHOLE_SET else f"{finding.file}: {finding.message}"


def in_few_words(findings: Iterable[Finding]) -> Iterator[str]:
    """Each as one line; the same advice is said once."""
    said = set()
    for finding in findings:
        words = in_words(finding)
        yield re.split("[;.] ", words, maxsplit=1)[0] if wording(finding) in said else words
        said.add(wording(finding))


def wording(finding: Finding) -> str:
    """What is left of a message without file and numbers."""
    return re.sub(r"\d+", "", finding.message.replace(finding.file, ""))


def errors_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings; each kind stays in its order."""
    return sorted(findings, key=lambda finding: finding.level != "error")


def leave_out(listing: Listing, split: SplitName, surveys: Surveys, config: Data) -> set[str]:
    """The names of the items that are left out of a split, since their image or mask cannot be decoded.

    Of unlabelled images, a share is (`data.unreadable`); of others, a few are if `data.skip_unreadable` says so.

    Raises:
        UserError: There are too many of them; or others cannot be used, such as masks whose values mean nothing.
    """
    bare = unreadable_without_labels(listing, surveys) if split == "train" else set()
    without = sum(not item.labelled for item in listing.train)
    if len(bare) > config.unreadable * without:
        limit = f"{100 * config.unreadable:g} % at most are left out"
        enough = (share / 100 for share in range(1, 100) if len(bare) <= share / 100 * without)
        way_out = next((f"{UNLABELLED} {share:g} leaves them out." for share in enough), "")
        raise _too_many(listing, {name: surveys[name] for name in bare}, without, "unlabelled", limit, way_out)
    unreadable = {name for name, survey in surveys.items() if survey.part in ("image", "mask")}
    broken, among = unreadable - bare, len(listing.splits[split])
    few = len(broken) <= MOST_LEFT_OUT * among
    if config.skip_unreadable and not few:
        limit = f"{SKIP} leaves out {100 * MOST_LEFT_OUT:.0f} % at most"
        raise _too_many(listing, {name: surveys[name] for name in broken}, among, WORDS[split], limit)
    left_out = bare | broken if config.skip_unreadable else bare
    rest = {name: survey for name, survey in surveys.items() if name not in left_out}
    way_out = f"{SKIP} leaves out files that cannot be read." if broken and few else ""
    refuse_errors(decoding_errors(listing, rest), listing, f"{WORDS[split]} images and their masks", way_out)
    return left_out


def _too_many(listing: Listing, broken: Surveys, among: int, kind: str, limit: str, leave_out: str = "") -> UserError:
    headline = (
        f"{listing.root}: {len(broken)} of the {among} {kind} images ({100 * len(broken) / among:.1f} %) cannot be "
        f"read, and {limit}."
    )
    way_out = " ".join(
        filter(
            None, ("Save them again, or remove them.", leave_out, f"Run `{listing.check_command}` to see all of it.")
        )
    )
    return refusal(headline, list(decoding_errors(listing, broken)), way_out)


def left_out_note(listing: Listing, split: SplitName, left_out: Surveys) -> str:
    """The note about images that are left out of a split."""
    among = len(listing.splits[split])
    names = listed((finding.file for finding in decoding_errors(listing, left_out)), NAMED)
    so = "" if split == "train" else f"; scores are of the other {among - len(left_out)}"
    bare = unreadable_without_labels(listing, left_out) if split == "train" else set()
    by = UNLABELLED if len(bare) == len(left_out) else SKIP
    verb = "is" if len(left_out) == 1 else "are"
    return (
        f"{len(left_out)} of the {among} {WORDS[split]} images cannot be read and {verb} left out ({by}){so}: "
        f"{names}. `{listing.check_command}` says why."
    )
