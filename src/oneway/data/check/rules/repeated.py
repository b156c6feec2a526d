"""Rules about images that occur twice, or look like others: what they cost depends on which splits they are in."""

from __future__ import annotations

from collections.abc import Iterator

from oneway.data.check.duplicates import ALIKE, nearest, nearest_other
from oneway.data.check.rules.interface import WHOLE_SET, Finding, Surveys, held_out, image_file
from oneway.data.dataset import Listing

REPEATED = 0.1  # share of a split's images from which repeated scenes are reported


def same_images(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images that occur twice where that matters; unlabelled ones may be copies of labelled ones, and often are."""
    labelled: dict[str, str] = {}
    unlabelled: dict[str, str] = {}
    for item in listing.train:
        if digest := surveys[item.name].digest:
            if item.labelled and digest in labelled:
                message = f"the same as {labelled[digest]}"
                yield Finding("warning", "Labelled images that occur twice", item.name, message)
            (labelled if item.labelled else unlabelled).setdefault(digest, image_file(item, listing))
    for split, items in held_out(listing):
        kind = f"{split.capitalize()} images that"
        for item in items:
            digest = surveys[item.name].digest
            if digest in labelled:
                message = f"the same as {labelled[digest]}; remove one of the two"
                yield Finding("error", f"{kind} are also trained on", item.name, message)
            elif digest in unlabelled:
                message = f"the same as {unlabelled[digest]}"
                yield Finding("warning", f"{kind} are also trained on, without their labels", item.name, message)


def similar_images(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Validation and test images that look like labelled training images, as neighbouring frames do; closest first."""
    train = [surveys[item.name] for item in listing.train if item.labelled and surveys[item.name].fingerprint]
    digests = {survey.digest for survey in train}
    for split, items in held_out(listing):
        kind = f"{split.capitalize()} images that look like training images: keep the frames of a video on one side"
        asked = [surveys[item.name] for item in items if surveys[item.name].fingerprint]
        index, similarity = nearest([one.fingerprint for one in train], [one.fingerprint for one in asked])
        for position in (-similarity).argsort(kind="stable"):
            if similarity[position] >= ALIKE and asked[position].digest not in digests:
                message = f"looks like {train[index[position]].name} (similarity {similarity[position]:.2f})"
                yield Finding("warning", kind, asked[position].name, message)


def repeated_scenes(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Labelled images of a split that look like others of it: there are fewer scenes than images."""
    for split, items, so in (
        ("training", listing.train, "a few of them, chosen at random, show much of what all show"),
        *((split, items, "a score on them says less than their number suggests") for split, items in held_out(listing)),
    ):
        shown = (surveys[item.name] for item in items if item.labelled and surveys[item.name].fingerprint)
        seen = list({one.digest: one for one in shown}.values())  # copies are another rule's
        index, similarity = nearest_other([one.fingerprint for one in seen])
        alike = int((similarity >= ALIKE).sum())
        if seen and alike >= REPEATED * len(seen):
            first = int(similarity.argmax())
            message = (
                f"{alike} of {len(seen)} {split} images look like another of them ({seen[first].name} like "
                f"{seen[index[first]].name}, similarity {similarity[first]:.2f}): {so}"
            )
            yield Finding("warning", "Scenes that repeat, as in the frames of a video", WHOLE_SET, message)
