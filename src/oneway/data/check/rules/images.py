"""Rules about single images: too small, dark or blank, turned, and with more bands or bits than are seen."""

from __future__ import annotations

from collections.abc import Iterator

from oneway.common.words import counted
from oneway.data.check.rules.interface import WHOLE_SET, Finding, Surveys, image_file
from oneway.data.check.survey import UPRIGHT, Survey
from oneway.data.dataset import Item, Listing
from oneway.data.decode.images import DARK, FEW_LEVELS, SIDEWAYS, bits_in_use
from oneway.data.decode.masks import MASK_SUFFIXES
from oneway.data.image_style import MOST_BITS

TINY = 32  # height or width below which a network with stride 32 has less than one cell


def odd_images(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images too small to learn from, of one colour, nearly black, of several pages, or seen otherwise than stored."""
    for item in listing.items:
        if surveys[item.name].fingerprint:
            for kind, message in _oddities(item, surveys[item.name]):
                yield Finding("warning", kind, image_file(item, listing), message)


def _oddities(item: Item, survey: Survey) -> Iterator[tuple[str, str]]:
    """What is odd about an image: a kind, and a message."""
    height, width = survey.size
    if min(height, width) < TINY:
        yield f"Images below {TINY} pixels", f"{width}×{height} pixels"
    if survey.pages > 1:
        yield (
            "Files of which only the first page is used",
            f"{survey.pages} pages; save the others as files of their own",
        )
    brightest = max(survey.fingerprint)
    few_bits = survey.brightest is not None and survey.brightest < DARK  # the rule of unused bits says what to do then
    if len(set(survey.fingerprint)) == 1 and not few_bits:
        yield "Blank images", f"grey value {brightest} all over"
    elif brightest < DARK and not few_bits:
        yield "Nearly black images", f"no region is brighter than {brightest} of 255"
    # Where an image lay on its side, an oblong mask that fits is upright too; elsewhere one cannot tell. Regions
    # were drawn on the image as tools show it, which is upright.
    drawn_apart = item.mask is not None and item.mask.suffix.lower() in MASK_SUFFIXES
    if drawn_apart and survey.orientation != UPRIGHT and (survey.orientation not in SIDEWAYS or height == width):
        yield (
            "Images that may be turned against their mask: see the contact sheet of `oneway check`",
            f"EXIF orientation {survey.orientation} is undone in the image; the mask is read as it is stored",
        )


def further_bands(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images with a band that is not used."""
    found = [item for item in listing.items if surveys[item.name].further_band]
    if found and listing.image_style.bands is None:
        infrared = ". If the fourth is infra-red, and not alpha, `bands: [4, 3, 2]` in dataset.yaml takes it for red"
        may_be = any(item.image.suffix.lower() in (".tif", ".tiff") for item in found)
        message = (
            f"{len(found)} of {len(listing.items)} images have a band besides their colours "
            f"({image_file(found[0], listing)} is the first): the first three are used, as red, green and blue"
            f"{infrared if may_be else ', and alpha is not'}"
        )
        yield Finding("warning", "Bands that are not used", WHOLE_SET, message)


def unused_bits(listing: Listing, surveys: Surveys) -> Iterator[Finding]:
    """Images in 16 bits that use only the lower ones, as those of many cameras do, or as reflectance is scaled.

    Where that leaves too few levels to learn from in all of them, it is an error; another number of bits mends it.
    """
    seen = ((item, surveys[item.name].brightest) for item in listing.items)
    brightest = {item: value for item, value in seen if value is not None}
    dark = {item: value for item, value in brightest.items() if value < DARK}
    most = max(brightest.values(), default=0)
    few = bool(brightest) and most < FEW_LEVELS and listing.image_style.bits == MOST_BITS
    nearly_black = few and most < DARK
    if few and not (nearly_black and len(brightest) < len(listing.items)):
        message = (
            f"no value of the {counted(len(brightest), 'image')} in 16 bits exceeds {256 * most + 255} of 65535, so "
            f"that of 256 levels {most + 1} are seen; `bits: {_usual_bits(most)}` in dataset.yaml spreads them over all"
        )
        if nearly_black:
            yield Finding("error", "Nearly black images in 16 bits", WHOLE_SET, message)
            return
        yield Finding("warning", "Dark images in 16 bits", WHOLE_SET, message)
    if dark:
        bits = _usual_bits(most if few else max(dark.values()))  # one number, or images would differ that were alike
        way_out = f"`bits: {bits}` in dataset.yaml spreads them over all levels"
        for item, value in dark.items():
            message = f"no value exceeds {256 * value + 255} of 65535, as from a camera of {bits} bits; {way_out}"
            yield Finding("warning", "Nearly black images in 16 bits", image_file(item, listing), message)


def _usual_bits(brightest: int) -> int:
    """An even number, as cameras have: images that are predicted may be brighter. Of 8 bits in 16, the least."""
    bits = bits_in_use(brightest)
    return bits + bits % 2 if brightest else bits
