"""A model from an ended run teaches: a large network, trained with the labels, and a small one that learns from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import oneway
from algorithms import batch_of, settings
from oneway.draws import draw_perturbation
from oneway.engine.start import training_state
from oneway.methods.consistency import consistency
from oneway.models import build
from oneway.ops import masked_kl
from oneway.perturb import phtps
from oneway.runs import TrainedModel, save_model
from oneway.tools.baseline import is_baseline_of, with_method
from small_runs import small_streets

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def taught_by(tmp_path_factory) -> Path:
    """A run with a wider network than that of its pupils."""
    config = small_streets(method="supervised", model={"width": 0.25})
    return oneway.fit(config, tmp_path_factory.mktemp("teacher") / "large", quiet=True).path


def test_its_predictions_are_the_targets():
    """The consistency loss is KL(teacher ‖ student) of the two networks, whatever teacher the method has otherwise."""
    config = small_streets(method="mt-phtps")
    large, small = (build(config.model.model_copy(update={"width": width}), 3, 0) for width in (0.25, 0.125))
    state = training_state([small], (), config, CPU, teacher=large)
    x = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    changes = phtps(draw_perturbation(0, 0, 2), x, config.perturb)
    loss = consistency(state.models, batch_of(x, x, x, [changes]), settings())
    with torch.no_grad():
        clean = torch.nn.functional.interpolate(large.eval()(x), (32, 48), mode="bilinear").softmax(dim=1)
        expected = masked_kl(changes.prediction(clean), small.train()(changes.image(x)), changes.valid)
    torch.testing.assert_close(loss.detach(), expected)
    assert state.averages == []
    assert state.kept is state.student


def test_a_pupil_is_kept_and_its_teacher_stays_as_it_was(taught_by, tmp_path):
    """The file is untouched, checkpoints hold the pupil alone, and a resumed run is the same to the bit."""
    before = (taught_by / "model.safetensors").read_bytes()
    config = small_streets(method="mt-colour-cutmix", teacher=taught_by, train={"checkpoint_every": 2, "log_every": 1})
    whole = oneway.fit(config, tmp_path / "whole", quiet=True)
    assert (taught_by / "model.safetensors").read_bytes() == before
    assert whole.metrics()[0]["consistency"] > 0

    content = load_file(sorted(whole.path.glob("checkpoint/*.safetensors"))[-1])
    assert not [name for name in content if name.startswith("teacher")]
    kept = load_file(whole.model_file)
    assert all(torch.equal(kept[name], content[f"student.{name}"]) for name in kept)

    halved = tmp_path / "halved"
    oneway.fit(config, halved, quiet=True)
    for path in (*halved.glob("checkpoint/00000004*"), halved / "summary.json", halved / "model.safetensors"):
        path.unlink()
    oneway.fit(config, halved, resume=True, quiet=True)
    again = load_file(sorted(halved.glob("checkpoint/*.safetensors"))[-1])
    assert all(torch.equal(again[name], content[name]) for name in content)


def test_a_baseline_has_no_teacher(taught_by):
    """What unlabelled images brought includes what they were taught by."""
    config = small_streets(method="mt-colour-cutmix", teacher=taught_by)
    assert with_method(config).teacher is None
    assert with_method(config, "mt-phtps").teacher == taught_by
    assert is_baseline_of(with_method(config), config)


def test_what_cannot_teach_is_refused(taught_by, tmp_path):
    """No such run; other classes; methods that learn from no teacher."""
    with pytest.raises(oneway.UserError, match=r"nowhere.*no such file"):
        oneway.fit(small_streets(teacher=tmp_path / "nowhere"), tmp_path / "run", quiet=True)
    for change in ({"method": "supervised"}, {"method": "vat-entmin"}, {"method": "cps"}, {"variant": "2w-c1"}):
        with pytest.raises(oneway.UserError, match="does not learn from the clean predictions of one teacher"):
            small_streets(teacher=taught_by, **change)
    assert not (tmp_path / "run").exists()


def test_other_classes_are_refused_by_name(tmp_path):
    """Before the run has a folder."""
    config = small_streets(model={"width": 0.125})
    network = build(config.model, 2, 0)
    save_model(tmp_path / "two.safetensors", TrainedModel(network, ("wall", "window"), ()), config.model)
    with pytest.raises(oneway.UserError, match="classes wall and window, and the data have sky"):
        oneway.fit(small_streets(teacher=tmp_path / "two.safetensors"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
