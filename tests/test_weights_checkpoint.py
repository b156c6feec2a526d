"""A checkpoint is no model to start from, and that is said."""

from __future__ import annotations

import pytest

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.models import build
from oneway.runs.weights import load_weights, read


def test_a_checkpoint_is_told_from_a_model(trained_run):
    """With what to give in its place, which is then taken."""
    checkpoint = max((trained_run / "checkpoint").glob("*.safetensors"))
    network = build(Model(width=0.125), 9, seed=0)
    with pytest.raises(UserError, match=r"a checkpoint.*Give the run folder") as error:
        read(str(checkpoint))
    assert str(checkpoint) in str(error.value)
    assert "fills" in load_weights(network, read(str(trained_run))).remarks[0]
