"""Settings at the edge of what is allowed: they train, or are refused by name; none is a bug."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from oneway.common.errors import UserError
from oneway.tools.train import train
from small_runs import QUIET, small_streets


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "supervised", "train": {"batch_labelled": 1}}, "--train.batch-labelled 2"),
        ({"method": "simple-phtps", "train": {"batch_unlabelled": 1}}, "--train.batch-unlabelled 2"),
    ],
)
def test_batch_norm_of_a_single_value_is_refused(changes, message, tmp_path):
    """With batch and crop, before a run has its folder."""
    with pytest.raises(UserError, match=rf"batch of 1 image, .* crop of 32×32, .*{message}"):
        train(small_streets(jitter={"crop": (32, 32)}, **changes), tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_batch_of_one_trains_where_its_crop_is_large_enough(tmp_path):
    """Two values are enough."""
    config = small_streets(method="supervised", train={"batch_labelled": 1, "iterations": 2})
    assert train(config, tmp_path / "run", resume=False, console=QUIET)["skipped_steps"] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"jitter": {"padding": 2**15}},
        {"jitter": {"scale": (1 / 64, 64.0)}},
        {"jitter": {"crop": (33, 65), "padding": 2**15, "beyond": "mirror"}},
        {"perturb": {"deviation": 1000.0, "geometric": 1000.0}},
        {"perturb": {"photometric": 1000.0}},
        {"method": "mt-colour-cutmix", "perturb": {"colour": 1000.0}},
        {"train": {"alpha": 1e6}},
    ],
    ids=str,
)
def test_the_largest_values_train_or_stop_with_a_reason(changes, tmp_path):
    """Steps that are not finite are skipped; when all are, that is said."""
    with suppress(UserError):
        train(small_streets(**changes), tmp_path / "run", resume=False, console=QUIET)


def test_a_run_that_has_learnt_nothing_is_no_success(tmp_path, monkeypatch):
    """Every step of a run that is shorter than `train.most_skipped` was skipped: no model, no summary."""
    config = small_streets(method="supervised", optimiser={"learning_rate": 1e30}, model={"factory": "spoilt:network"})
    (tmp_path / "spoilt.py").write_text(
        "import torch\n"
        "class Spoilt(torch.nn.Conv2d):\n"
        "    def forward(self, x):\n"
        "        return super().forward(x) * (float('inf') if len(x) == 2 and Spoilt.armed else 1)\n"
        "Spoilt.armed = False\n"
        "def network(classes):\n"
        "    return Spoilt(3, classes, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    from oneway.models.factory import call_factory

    armed = type(call_factory("spoilt:network", 3))
    steps = "oneway.tools.train.choose_step"
    from oneway.engine.capture import choose_step

    def arm(*arguments):
        armed.armed = True
        return choose_step(*arguments)

    monkeypatch.setattr(steps, arm)
    with pytest.raises(
        UserError, match=r"last 4 steps up to iteration 4 were not finite and were skipped \(4 in all\)"
    ):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "summary.json").exists()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert not [line for line in lines if "miou" in line]
