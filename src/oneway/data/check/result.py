"""What decoding all of a data set has shown: counts of images, classes and pixels, and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from oneway.common.progress import progress_bar
from oneway.common.terms import IGNORE, SplitName
from oneway.data.check.findings import apply_rules, errors_first
from oneway.data.check.rules.interface import Finding, Surveys, pixels_by_label
from oneway.data.check.survey import survey_all
from oneway.data.dataset import Colour, Item, Listing

KEYS = ("labelled", "unlabelled", "validation", "test", "unusable")
"""What JSON calls the numbers of images of each kind."""


@dataclass(frozen=True)
class ClassCount:
    """How often a class occurs in the masks of all splits."""

    name: str
    colour: Colour
    pixels: int
    share: float  # from 0 to 1, of all pixels that are labelled and not ignored
    images: dict[SplitName, int]  # how many images of a split show it


@dataclass(frozen=True)
class Check:
    """A data set, what decoding all of it has shown, and what is wrong with it."""

    listing: Listing
    surveys: Surveys
    findings: tuple[Finding, ...]  # errors first

    @property
    def name(self) -> str:
        """The name of its folder, even where the folder was given as a dot."""
        return self.listing.root.resolve().name

    @property
    def splits(self) -> dict[SplitName, tuple[Item, ...]]:
        """The splits that have images."""
        return {name: items for name, items in self.listing.splits.items() if items}

    @property
    def counts(self) -> dict[str, int]:
        """The number of images of each kind that can be used, by the words for it; and of those that cannot."""
        train, val, test = (
            [item for item in items if not self.surveys[item.name].problem] for items in self.listing.splits.values()
        )
        labelled = sum(item.labelled for item in train)
        unusable = len(self.listing.items) - len(train) - len(val) - len(test)
        return {
            "labelled": labelled,
            "unlabelled": len(train) - labelled,
            "for validation": len(val),
            "for testing": len(test),
            "cannot be used": unusable,
        }

    @property
    def sizes(self) -> Counter[tuple[int, int]]:
        """How many of the readable images have which height and width."""
        return Counter(survey.size for survey in self.surveys.values() if survey.fingerprint)

    @property
    def ignored(self) -> float:
        """Share of the pixels of all masks that belong to no class."""
        count = pixels_by_label(self.listing.items, self.surveys)
        return count[IGNORE] / max(count.total(), 1)

    @property
    def has_errors(self) -> bool:
        """Whether anything found is an error, and not only a warning."""
        return any(finding.level == "error" for finding in self.findings)

    def classes(self) -> list[ClassCount]:
        """How often each class of the listing occurs, in its order."""
        pixels = pixels_by_label(self.listing.items, self.surveys)
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
            **dict(zip(KEYS, self.counts.values(), strict=True)),
            "sizes": [
                {"height": height, "width": width, "images": count}
                for (height, width), count in self.sizes.most_common()
            ],
            "classes": [asdict(entry) for entry in self.classes()],
            "ignored": self.ignored,
            "remarks": list(self.listing.remarks),
            "findings": [asdict(finding) for finding in self.findings],
        }


def check_data(listing: Listing, console: Console, known: Iterable[Finding] = ()) -> Check:
    """Decode every image and mask once, and apply all rules; `known` is what listing the files has found already."""
    items = listing.items
    with progress_bar(console, "Checking images", len(items)) as advance:
        surveys = survey_all(listing, items, advance)
    return Check(listing, surveys, tuple(errors_first([*known, *apply_rules(listing, surveys)])))
