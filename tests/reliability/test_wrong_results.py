"""Files that are in order by their form and wrong in their content: no result is made of them."""

from __future__ import annotations

import pytest

from reliability import wrong_caches, wrong_models

pytestmark = pytest.mark.slow

CASES = [(what, "predict") for what in wrong_models.VALUES] + [
    ("a weight that is NaN", verb) for verb in wrong_models.VERBS if verb != "predict"
]


@pytest.mark.parametrize(("what", "verb"), CASES)
def test_weights_that_compute_nonsense(what, verb, tmp_path, survives):
    """Refused where a model is loaded, by the name of the tensor."""
    survives("15 weights that compute nonsense: refused", wrong_models.value_is_refused(tmp_path, what, verb))


def test_models_of_formats_that_do_not_exist(tmp_path, tally):
    """No format goes without the checksum."""
    tried, accepted = 4 * len(wrong_models.FORMATS), wrong_models.formats_are_refused(tmp_path)
    tally("15 models of formats that do not exist: refused", tried, tried - len(accepted))
    assert not accepted


@pytest.mark.parametrize("what", wrong_caches.ALTERED)
def test_decoded_images_that_are_altered(what, tmp_path, survives):
    """Noticed, said, decoded again: the same model, to the byte."""
    survives("15 decoded images altered: decoded again", wrong_caches.altered_cache_changes_nothing(tmp_path, what))


def test_flipped_bits_in_decoded_images(tmp_path, tally):
    """In pixels, labels and index, one at a time."""
    wrong = wrong_caches.flips(tmp_path, 200, seed=0)
    tally("15 flipped bits in a cache: decoded again", 200, 200 - len(wrong))
    assert not wrong


def test_malformed_indexes(tmp_path, tally):
    """Of which the digest matches: decoded again, and no bug."""
    wrong = wrong_caches.malformed_indexes(tmp_path, 250, seed=0)
    tally("15 malformed indexes of a cache: decoded again", 250, 250 - len(wrong))
    assert not wrong
