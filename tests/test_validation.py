"""Validation that keeps its images and replays its network gives the scores of validation that does not."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from oneway.common.terms import IGNORE
from oneway.data.dataset import Samples
from oneway.tools import evaluate, validation
from oneway.tools.evaluate import as_input, predict
from oneway.tools.validation import Validator

CLASSES = 5


class Replayed:
    """What a captured call promises, on a CPU: one memory for all inputs, longer ones are refused."""

    made: ClassVar[list[Replayed]] = []

    def __init__(self, function, like):
        self.function, self.input, self.calls = function, torch.zeros_like(like), 0
        self.made.append(self)

    def __call__(self, x):
        self.calls += 1
        self.input[: len(x)].copy_(x)
        return tuple(result[: len(x)] for result in self.function(self.input))


def samples_of(sizes: list[tuple[int, int]]) -> Samples:
    noise, pixels = np.random.default_rng(0), sum(height * width for height, width in sizes)
    labels = noise.integers(CLASSES, size=(pixels, 1), dtype=np.uint8)
    labels[noise.random((pixels, 1)) < 0.2] = IGNORE
    places = np.array(sizes, dtype=np.int64).reshape(-1, 2)
    names = tuple(f"{index}.png" for index in range(len(sizes)))
    colours = noise.integers(256, size=(pixels, 3), dtype=np.uint8)
    return Samples(names, places, colours, labels, len(sizes), dense=True, content="")


@pytest.fixture
def network(monkeypatch):
    monkeypatch.setattr(validation, "CapturedCall", Replayed)
    monkeypatch.setattr(Replayed, "made", [])
    monkeypatch.setattr(evaluate, "PIXELS_AT_ONCE", 3 * 16 * 24)
    torch.manual_seed(0)
    return nn.Conv2d(3, CLASSES, 3, padding=1)


@pytest.mark.parametrize("most_bytes", [2**28, 0])
def test_a_replayed_network_has_the_same_scores(network, monkeypatch, most_bytes):
    """With batches of three, three, two and another size; then again, with other weights, and no image is read."""
    monkeypatch.setattr(validation, "MOST_BYTES", most_bytes)
    samples = samples_of([(8, 8), *[(16, 24)] * 8])
    validator = Validator(network, samples, CLASSES, pytest.fail, captured=True)
    read, usual = [], Samples.image
    monkeypatch.setattr(Samples, "image", lambda self, index: read.append(index) or usual(self, index))
    for again in range(2):
        expected = evaluate.evaluate(network, samples, CLASSES)
        read.clear()
        scores = validator.score(look_at=[0, 4, 8])
        assert torch.equal(scores.confusion, expected.confusion)
        assert bool(read) == (not again or not most_bytes)
        read.clear()
        seen = {index: validator.look(index) for index in (0, 4, 8)}
        assert not read
        for index, labels in seen.items():
            x = as_input(torch.from_numpy(samples.image(index))[None])
            assert np.array_equal(labels, predict(network, x)[0].numpy())
        network.weight.data += 0.1 * torch.randn_like(network.weight)
    (made,) = Replayed.made
    assert (made.input.shape, made.calls) == ((3, 16, 24, 3), 6)
    validator.score()
    assert np.array_equal(validator.look(4), predict(network, as_input(torch.from_numpy(samples.image(4))[None]))[0])


@pytest.mark.parametrize(
    ("message", "told"), [("operation not permitted\nmore", "operation not permitted"), ("", "RuntimeError")]
)
def test_what_cannot_be_captured_is_validated_all_the_same(network, monkeypatch, message, told):
    """And says so, once, also where the error has no words."""

    def refuse(function, like):
        raise RuntimeError(message)

    monkeypatch.setattr(validation, "CapturedCall", refuse)
    samples, said = samples_of([(16, 24)] * 4), []
    validator = Validator(network, samples, CLASSES, said.append, captured=True)
    for _ in range(2):
        found = validator.score(look_at=[1])
        assert torch.equal(found.confusion, evaluate.evaluate(network, samples, CLASSES).confusion)
    assert said == [f"Validation cannot be captured as a CUDA graph and runs slower: {told}"]
    assert validator.look(1).shape == (16, 24)


@pytest.mark.parametrize("sizes", [[], [(8, 8), (8, 9), (8, 8), (9, 9)]])
def test_images_of_many_sizes_are_not_captured(network, sizes):
    """Nor are none."""
    assert not Validator(network, samples_of(sizes), CLASSES, pytest.fail, captured=True).captured
