"""The look at a data set before anything trains on it: what is there, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from oneway.data.check.defects import RULES, WHOLE_SET, Finding, Surveys, every_item, total
from oneway.data.check.survey import Tell, survey_all
from oneway.data.dataset import IGNORE, Colour, Item, Listing
from oneway.errors import UserError
from oneway.methods import SplitName

NAMED_WHEN_REFUSED = 5


@dataclass(frozen=True)
class ClassCount:
    """How often a class occurs."""

    name: str
    colour: Colour
    pixels: int
    share: float
    """Of the labelled pixels of all splits."""

    images: dict[SplitName, int]
    """How many show it."""


@dataclass(frozen=True)
class Check:
    """A data set looked at."""

    listing: Listing
    surveys: Surveys
    findings: tuple[Finding, ...]
    """Errors first."""

    @property
    def name(self) -> str:
        """Of its folder, whichever way that was given."""
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
        """Those that have images."""
        splits: dict[SplitName, tuple[Item, ...]] = {
            "train": self.listing.train,
            "val": self.listing.val,
            "test": self.listing.test,
        }
        return {name: items for name, items in splits.items() if items}

    @property
    def sizes(self) -> Counter[tuple[int, int]]:
        """How many of the readable images have which height and width."""
        return Counter(survey.size for survey in self.surveys.values() if survey.fingerprint)

    @property
    def ignored(self) -> float:
        """Share of the pixels of all masks."""
        count = total(every_item(self.listing), self.surveys)
        return count[IGNORE] / max(count.total(), 1)

    @property
    def hurts(self) -> bool:
        """Whether there is an error."""
        return any(finding.level == "error" for finding in self.findings)

    def classes(self) -> list[ClassCount]:
        """Every class of the listing, in its order."""
        pixels = total(every_item(self.listing), self.surveys)
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
        """The same for machines."""
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


def look_at(listing: Listing, tell: Tell, known: Iterable[Finding] = ()) -> Check:
    """Decodes every image and mask once; `known` is what listing them has found already."""
    surveys = survey_all(listing, every_item(listing), tell)
    return Check(listing, surveys, tuple(_errors_first([*known, *judge(listing, surveys)])))


def judge(listing: Listing, surveys: Surveys) -> list[Finding]:
    """Everything found in the items that have been surveyed, errors first."""
    seen = surveyed(listing, surveys)
    return _errors_first(finding for rule in RULES for finding in rule(seen, surveys))


def surveyed(listing: Listing, surveys: Surveys) -> Listing:
    """The listing with nothing but surveyed items in it."""
    train, val, test = (
        tuple(item for item in items if item.name in surveys) for items in (listing.train, listing.val, listing.test)
    )
    return replace(listing, train=train, val=val, test=test)


def refuse(findings: Iterable[Finding], listing: Listing, way_out: str = "") -> None:
    """Raises a UserError that sums up the errors, if there are any; it ends with the way out."""
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return
    lines = [
        f"{listing.root}: {len(errors)} error{'s' if len(errors) > 1 else ''} in the data.",
        *(f"  {in_words(error)}" for error in errors[:NAMED_WHEN_REFUSED]),
        *([f"  … and {len(errors) - NAMED_WHEN_REFUSED} more"] if len(errors) > NAMED_WHEN_REFUSED else []),
        f"Run `{listing.check_command}` to see all of it. {way_out}".rstrip(),
    ]
    raise UserError("\n".join(lines))


def summed_up(findings: Iterable[Finding]) -> list[str]:
    """A line for each kind of finding: how many there are, and the first."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    return [
        f"{kind} ({len(found)}): {in_words(found[0])}{', …' if len(found) > 1 else ''}" for kind, found in kinds.items()
    ]


def in_words(finding: Finding) -> str:
    """A finding in a line."""
    return finding.message if finding.file == WHOLE_SET else f"{finding.file}: {finding.message}"


def _errors_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.level != "error")
