"""Files that are in order by their form and wrong in their content: no result is made of them."""

from __future__ import annotations

import pytest

from reliability import wrong_models

pytestmark = pytest.mark.slow

CASES = [(what, "predict") for what in wrong_models.VALUES] + [
    ("a weight that is NaN", verb) for verb in wrong_models.VERBS if verb != "predict"
]


@pytest.mark.parametrize(("what", "verb"), CASES)
def test_weights_that_compute_nonsense(what, verb, tmp_path, tally):
    """Refused where a model is loaded, by the name of the tensor."""
    survived = wrong_models.value_is_refused(tmp_path, what, verb)
    tally("15 weights that compute nonsense: refused", 1, survived)
    assert survived


def test_models_of_formats_that_do_not_exist(tmp_path, tally):
    """No format goes without the checksum."""
    tried, accepted = 4 * len(wrong_models.FORMATS), wrong_models.formats_are_refused(tmp_path)
    tally("15 models of formats that do not exist: refused", tried, tried - len(accepted))
    assert not accepted
