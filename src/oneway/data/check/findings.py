"""Findings about a data set: made by applying all rules to it, told in lines, and raised where they are errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oneway.common.errors import UserError
from oneway.common.words import counted
from oneway.data.check.defects import RULES, WHOLE_SET, Finding, Surveys
from oneway.data.dataset import Listing

NAMED = 5
"""Files that a message names."""


def apply_rules(listing: Listing, surveys: Surveys) -> list[Finding]:
    """What all rules find in the items that have been surveyed, errors first."""
    seen = only_surveyed(listing, surveys)
    return errors_first(finding for rule in RULES for finding in rule(seen, surveys))


def only_surveyed(listing: Listing, surveys: Surveys) -> Listing:
    """The listing without the items that have not been surveyed."""
    train, val, test = (tuple(item for item in items if item.name in surveys) for items in listing.splits.values())
    return replace(listing, train=train, val=val, test=test)


def refuse_errors(findings: Iterable[Finding], listing: Listing, where: str = "data", way_out: str = "") -> None:
    """Raises a UserError with the first errors, if there are any; `where` names the part of the data they are in."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        headline = f"{listing.root}: {counted(len(errors), 'error')} in the {where}."
        raise refusal(headline, errors, f"Run `{listing.check_command}` to see all of it. {way_out}".rstrip())


def refusal(headline: str, findings: Sequence[Finding], way_out: str) -> UserError:
    """The error with the first findings, one on each line, and how many more there are."""
    lines = [headline, *(f"  {in_words(finding)}" for finding in findings[:NAMED])]
    if len(findings) > NAMED:
        lines.append(f"  … and {len(findings) - NAMED} more")
    return UserError("\n".join([*lines, way_out]))


def summarise(findings: Iterable[Finding]) -> list[str]:
    """One line for each kind of finding: how many there are, and the first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    return [
        f"{kind} ({len(found)}): {in_words(found[0])}{', …' if len(found) > 1 else ''}" for kind, found in kinds.items()
    ]


def in_words(finding: Finding) -> str:
    """A finding as one line: its file, and the message."""
    return finding.message if finding.file == WHOLE_SET else f"{finding.file}: {finding.message}"


def errors_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings; each kind stays in its order."""
    return sorted(findings, key=lambda finding: finding.level != "error")
