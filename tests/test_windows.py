"""Evaluation in sliding windows."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from oneway import data, runs
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.evaluate import evaluate, predict
from oneway.tools.windows import predict_in_windows, spans


class Local(nn.Module):
    """Logits at a quarter of the size, which depend on what else a window shows, and on where its borders are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), nn.Tanh(), nn.Conv2d(8, 5, 5, 2, 2)).double()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return 9 * (y - y.mean(dim=(2, 3), keepdim=True))


def sum_of_windows(model: nn.Module, x: Tensor, grid: int) -> Tensor:
    """The protocol that papers follow on Cityscapes, as a loop over a whole image: N×C×H×W sums of probabilities."""
    height, width = x.shape[2:]
    total = torch.zeros(len(x), 5, height, width, dtype=torch.float64)
    row = 0
    while row < height:
        column = 0
        while column < width:
            window = x[:, :, row : min(height, row + grid), column : min(width, column + grid)]
            logits = nn.functional.interpolate(model(window), window.shape[2:], mode="bilinear", align_corners=False)
            total[:, :, row : row + grid, column : column + grid] += logits.softmax(dim=1)
            column += int(grid * 2 / 3)
        row += int(grid * 2 / 3)
    return total


@pytest.mark.parametrize(("height", "width", "grid"), [(96, 128, 48), (48, 90, 37), (60, 100, 30)])
def test_windows_are_those_of_the_papers(height, width, grid):
    """Labels are those of a literal loop in double precision, in which windows at the border are cut off."""
    assert all(size - spans(size, grid)[-1][0] <= grid * 2 // 3 for size in (height, width))  # none within another
    model, x = Local(), torch.rand(2, 3, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        total = sum_of_windows(model, x, grid)
    labels = predict_in_windows(model, x, (grid, grid))
    assert torch.equal(labels, total.argmax(dim=1))
    assert not torch.equal(labels, predict(model, x))  # or nothing would have been tested


def test_cityscapes_has_the_windows_of_the_papers():
    """Images of 1024×2048 with windows of 801: two rows of four."""
    assert spans(1024, 801) == [(0, 801), (534, 1024)]
    assert spans(2048, 801) == [(0, 801), (534, 1335), (1068, 1869), (1602, 2048)]


@pytest.mark.parametrize("window", [1, 2, 5, 16, 33, 64, 65, 200])
def test_windows_cover_an_image(window):
    """Every pixel, to the border and not beyond, none of them within another; one where it all fits."""
    for length in range(1, 130):
        found = spans(length, window)
        covered = np.zeros(length, dtype=int)
        for start, stop in found:
            assert 0 <= start < stop <= length
            covered[start:stop] += 1
        assert covered.min() >= 1
        assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(found))
        assert len(found) == 1 or length > window


def test_an_image_that_fits_is_seen_whole():
    """A window that is no smaller changes nothing."""
    model, x = Local(), torch.rand(1, 3, 40, 60, dtype=torch.float64)
    assert torch.equal(predict_in_windows(model, x, (40, 60)), predict(model, x))


class Largest(TorchDispatchMode):
    """Within the block, the most elements that any tensor of class scores has."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.ndim == 4:
            self.most = max(self.most, found.numel())
        return found


def test_memory_does_not_grow_with_the_height():
    """Of one row of windows, the probabilities are kept; the image itself has three channels."""
    tall = torch.rand(1, 3, 900, 40, dtype=torch.float64)
    with Largest() as windows:
        predict_in_windows(Local(), tall, (40, 40))
    with Largest() as whole:
        predict(Local(), tall)
    assert (windows.most, whole.most) == (5 * 40 * 40, 5 * 900 * 40)


def test_eval_takes_windows(trained_run, capsys):
    """They are in the result and its title; one as large as the images changes nothing."""
    found = {}
    for name, flags in {"whole": [], "large": ["--window", "32", "64"], "small": ["--window", "32", "32"]}.items():
        app(["eval", str(trained_run), "--json", *flags], result_action="return_value")
        found[name] = json.loads(capsys.readouterr().out)
    assert found["large"]["confusion"] == found["whole"]["confusion"] != found["small"]["confusion"]
    assert "window" not in found["whole"]
    assert found["small"]["window"] == [32, 32]
    app(["eval", str(trained_run), "--window", "32", "32"], result_action="return_value")
    assert "in windows of 32×32 pixels" in capsys.readouterr().out


@pytest.mark.parametrize("window", ["1 1", "31 400", "400 2"])
def test_windows_that_show_nothing_are_refused(trained_run, monkeypatch, window):
    """Before the model is read: a window of a pixel would be a pass of the network for each of them."""
    monkeypatch.setattr(runs, "load_model", lambda *_: pytest.fail("read the model"))
    with pytest.raises(UserError, match=f"--window {window}: .* 32 pixels or more a side, .* --window 32 64"):
        app(["eval", str(trained_run), "--window", *window.split()], result_action="return_value")


@pytest.mark.parametrize("flags", ["--window 32 64", "--mirror"])
def test_whole_inputs_are_seen_as_they_are(tmp_path, flags):
    """A run that classifies has neither windows nor mirror images; said before its model is asked for."""
    (tmp_path / "config.yaml").write_text(recipe("moons").to_yaml())
    with pytest.raises(UserError, match=f"{flags.split()[0]}: .* classifies moons"):
        app(["eval", str(tmp_path), *flags.split()], result_action="return_value")


def test_scores_are_of_the_windows(two_runs):
    """`evaluate` hands windows down."""
    run = open_run(two_runs[1])
    model = runs.load_model(run.model_file, torch.device("cpu"))
    samples = data.load(run.config.data).read("val")
    found = evaluate(model.network, samples, len(model.classes), window=(16, 32)).confusion
    images = torch.from_numpy(np.stack([samples.image(index) for index in range(len(samples))]))
    labels = predict_in_windows(model.network, images.permute(0, 3, 1, 2).float() / 255, (16, 32))
    expected = np.zeros_like(found.numpy())
    for index in range(len(samples)):
        known = samples.label_map(index)
        np.add.at(expected, (known[known != 255], labels[index].numpy()[known != 255]), 1)
    assert np.array_equal(found.numpy(), expected)
