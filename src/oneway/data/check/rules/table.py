"""All rules, in the order in which their findings are told."""

from __future__ import annotations

from oneway.data.check.rules.files import absent_masks, decoding_errors, doubtful_files, too_few_labels
from oneway.data.check.rules.images import further_bands, odd_images, unused_bits
from oneway.data.check.rules.interface import Rule
from oneway.data.check.rules.labels import absent_classes, ignored_masks, predicted_masks, two_codings
from oneway.data.check.rules.repeated import repeated_scenes, same_images, similar_images

RULES: tuple[Rule, ...] = (
    decoding_errors,
    too_few_labels,
    absent_masks,
    doubtful_files,
    ignored_masks,
    predicted_masks,
    absent_classes,
    two_codings,
    odd_images,
    further_bands,
    unused_bits,
    same_images,
    similar_images,
    repeated_scenes,
)
