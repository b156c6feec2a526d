"""A data set is checked before anything trains on it: what is there, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE, SplitName
from oneway.data.check.defects import RULES, WHOLE_SET, Finding, Surveys, every_item, pixels_by_label
from oneway.data.check.survey import Tell, survey_all
from oneway.data.dataset import Colour, Item, Listing

NAMED = 5
"""Files that a message names."""


@dataclass(frozen=True)
class ClassCount:
    """How often a class occurs in the masks of all splits."""

    name: str
    colour: Colour
    pixels: int
    share: float
    """From 0 to 1, of all pixels that are labelled and not ignored."""

    images: dict[SplitName, int]
    """How many images of a split show it."""


@dataclass(frozen=True)
class Check:
    """A data set, what decoding all of it has shown, and what is wrong with it."""

    listing: Listing
    surveys: Surveys
    findings: tuple[Finding, ...]
    """Errors first."""

    @property
    def name(self) -> str:
        """That of its folder, even where the folder was given as a dot."""
        return self.listing.root.resolve().name

    @property
    def labelled(self) -> tuple[Item, ...]:
        """Training images with a mask."""
        return tuple(item for item in self.listing.train if item.mask)

    @property
    def unlabelled(self) -> tuple[Item, ...]:
        """Training images without a mask."""
        return tuple(item for item in self.listing.train if not item.mask)

    @property
    def splits(self) -> dict[SplitName, tuple[Item, ...]]:
        """The splits that have images."""
        return {name: items for name, items in self.listing.splits.items() if items}

    @property
    def counts(self) -> dict[str, int]:
        """How many images there are of each kind, which is named in words."""
        return {
            "labelled": len(self.labelled),
            "unlabelled": len(self.unlabelled),
            "for validation": len(self.listing.val),
            "for testing": len(self.listing.test),
        }

    @property
    def sizes(self) -> Counter[tuple[int, int]]:
        """How many of the readable images have which height and width."""
        return Counter(survey.size for survey in self.surveys.values() if survey.fingerprint)

    @property
    def ignored(self) -> float:
        """Share of the pixels of all masks that belong to no class."""
        count = pixels_by_label(every_item(self.listing), self.surveys)
        return count[IGNORE] / max(count.total(), 1)

    @property
    def hurts(self) -> bool:
        """Whether anything found is an error, and not only a warning."""
        return any(finding.level == "error" for finding in self.findings)

    def classes(self) -> list[ClassCount]:
        """How often each class of the listing occurs, in its order."""
        pixels = pixels_by_label(every_item(self.listing), self.surveys)
        labelled = max(pixels.total() - pixels[IGNORE], 1)
        images = {
            split: Counter(label for item in items for label in self.surveys[item.name].labels or {})
            for split, items in self.splits.items()
        }
        return [
            ClassCount(
                name, colour, pixels[label], pixels[label] / labelled, {split: images[split][label] for split in images}
            )
            for label, (name, colour) in enumerate(zip(self.listing.classes, self.listing.colours, strict=True))
        ]

    def to_json(self) -> dict[str, Any]:
        """What the check found, for machines."""
        return {
            "data": str(self.listing.root),
            "labelled": len(self.labelled),
            "unlabelled": len(self.unlabelled),
            "validation": len(self.listing.val),
            "test": len(self.listing.test),
            "sizes": [
                {"height": height, "width": width, "images": count}
                for (height, width), count in self.sizes.most_common()
            ],
            "classes": [asdict(entry) for entry in self.classes()],
            "ignored": self.ignored,
            "remarks": list(self.listing.remarks),
            "findings": [asdict(finding) for finding in self.findings],
        }


def check_data(listing: Listing, tell: Tell, known: Iterable[Finding] = ()) -> Check:
    """Decodes every image and mask once, and applies all rules; `known` is what listing the files has found already."""
    surveys = survey_all(listing, every_item(listing), tell)
    return Check(listing, surveys, tuple(_errors_first([*known, *apply_rules(listing, surveys)])))


def apply_rules(listing: Listing, surveys: Surveys) -> list[Finding]:
    """What all rules find in the items that have been surveyed, errors first."""
    seen = only_surveyed(listing, surveys)
    return _errors_first(finding for rule in RULES for finding in rule(seen, surveys))


def only_surveyed(listing: Listing, surveys: Surveys) -> Listing:
    """The listing with nothing but surveyed items in it."""
    train, val, test = (tuple(item for item in items if item.name in surveys) for items in listing.splits.values())
    return replace(listing, train=train, val=val, test=test)


def refuse_errors(findings: Iterable[Finding], listing: Listing, where: str = "data", way_out: str = "") -> None:
    """Raises a UserError that sums up the errors, if there are any, and says where; it ends with the way out."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        headline = f"{listing.root}: {len(errors)} error{'s' if len(errors) > 1 else ''} in the {where}."
        raise refusal(headline, errors, f"Run `{listing.check_command}` to see all of it. {way_out}".rstrip())


def refusal(headline: str, findings: Sequence[Finding], way_out: str) -> UserError:
    """An error that names the first of its reasons, and says how many more there are."""
    lines = [headline, *(f"  {in_words(finding)}" for finding in findings[:NAMED])]
    if len(findings) > NAMED:
        lines.append(f"  … and {len(findings) - NAMED} more")
    return UserError("\n".join([*lines, way_out]))


def summed_up(findings: Iterable[Finding]) -> list[str]:
    """A line for each kind of finding: how many there are, and the first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    return [
        f"{kind} ({len(found)}): {in_words(found[0])}{', …' if len(found) > 1 else ''}" for kind, found in kinds.items()
    ]


def in_words(finding: Finding) -> str:
    """A finding as one line: its file, and the message."""
    return finding.message if finding.file == WHOLE_SET else f"{finding.file}: {finding.message}"


def _errors_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.level != "error")
