"""Facts about SwiftNet, its weights, batch-norm policy and the mean teacher."""

from __future__ import annotations

from typing import Any

import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F

from oneway.config import Model, Optimiser, Train
from oneway.errors import UserError
from oneway.models import SwiftNet, build
from oneway.models.norm import population_statistics, untracked_statistics
from oneway.models.teacher import mean_teacher, update_mean_teacher
from oneway.optim import alpha_at, optimiser_for, set_learning_rate, total_iterations


def small(seed: int = 0, **settings: Any) -> SwiftNet:
    model = build(Model(width=0.125, **settings), classes=5, seed=seed)
    assert isinstance(model, SwiftNet)
    return model


def awakened(model: SwiftNet) -> SwiftNet:
    """Residual branches start at zero (timm's initialisation); give them weight, as the first steps of training do."""
    for name, parameter in model.named_parameters():
        if name.endswith("bn2.weight"):
            torch.nn.init.ones_(parameter)
    return model


@pytest.mark.parametrize(("backbone", "parameters"), [("resnet18", 11_797_071), ("resnet34", 21_905_231)])
def test_parameter_counts_are_the_papers(backbone, parameters):
    """11.80 M and 21.91 M with 19 classes."""
    assert sum(p.numel() for p in SwiftNet(19, backbone).parameters()) == parameters


@pytest.mark.parametrize("size", [(64, 128), (33, 70), (32, 32)])
def test_logits_come_at_a_quarter_of_the_size(size):
    """Stride 4, rounded up, at odd sizes too."""
    logits = small().eval()(torch.rand(2, 3, *size))
    assert logits.shape == (2, 5, -(-size[0] // 4), -(-size[1] // 4))


def test_features_are_residual_sums_before_the_last_rectification():
    """Rectified, our features are those of timm's own ResNet; unrectified, they go below zero."""
    encoder = awakened(small()).encoder.eval()
    reference = timm.create_model("resnet18", channels=encoder.channels, features_only=True).eval()
    reference.load_state_dict(encoder.net.state_dict())
    x = torch.randn(1, 3, 64, 64)
    for ours, timms in zip(encoder(x), reference(x)[1:], strict=True):
        assert ours.min() < 0
        torch.testing.assert_close(F.relu(ours), timms)


def test_initial_weights_are_a_function_of_the_seed():
    """And building a model leaves the global generator alone."""
    before = torch.random.get_rng_state()
    first, again, other = (small(seed).head[-1].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_gradient_reaches_every_parameter():
    """Nothing is built that does not train."""
    model = awakened(small()).train()
    model(torch.rand(2, 3, 64, 64)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_encoder_weights_come_from_a_file(tmp_path, suffix):
    """A whole timm classifier's state dict fills the encoder; its classifier is left out."""
    source = timm.create_model("resnet18", channels=(8, 16, 32, 64), num_classes=10)
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(source.state_dict(), path)
    else:
        safetensors.torch.save_file(source.state_dict(), path)
    model = small(weights=str(path))
    assert torch.equal(model.encoder.net.conv1.weight, source.conv1.weight)
    assert torch.equal(model.encoder.net.layer4[1].bn2.bias, source.layer4[1].bn2.bias)


class Trap:
    """What a hostile pickle does: runs something when it is read."""

    def __reduce__(self):
        return (print, ("executed",))


def test_unusable_weights_are_refused_with_the_reason(tmp_path, capsys):
    """A missing file, a file of another network, and a pickle with code in it; the code does not run."""
    other = tmp_path / "wide.safetensors"
    safetensors.torch.save_file(timm.create_model("resnet18", channels=(8, 16, 32, 65)).state_dict(), other)
    trap = tmp_path / "trap.pth"
    torch.save({"conv1.weight": Trap()}, trap)
    for path, reason in ((tmp_path / "none.pth", "no such file"), (other, "shape"), (trap, "not a readable")):
        with pytest.raises(UserError, match=reason) as error:
            small(weights=str(path))
        assert str(path) in str(error.value)
    assert "executed" not in capsys.readouterr().out


def buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def test_teacher_uses_population_statistics_and_changes_nothing():
    """The same output whatever else is in the batch, and no buffer moves; training mode comes back."""
    model = small().train()
    before = buffers(model)
    x = torch.rand(3, 3, 64, 64)
    with population_statistics(model):
        torch.testing.assert_close(model(x)[:1], model(x[:1]))
    assert model.training
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


def test_perturbed_student_uses_the_batch_and_changes_nothing():
    """Batch statistics as in any training pass, but no running statistic moves; afterwards they do again."""
    model = small().train()
    before = buffers(model)
    x = torch.rand(3, 3, 64, 64)
    with untracked_statistics(model):
        untracked = model(x)
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    assert torch.equal(model(x), untracked)
    assert not torch.equal(before["encoder.net.bn1.running_mean"], model.encoder.net.bn1.running_mean)


def test_mean_teacher_averages_parameters_and_statistics():
    """θ' = decay·θ' + (1 − decay)·θ for every floating tensor; counters follow the student."""
    student = small(0).train()
    teacher = mean_teacher(small(1))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    student(torch.rand(2, 3, 64, 64))  # moves the running statistics
    update_mean_teacher(teacher, student, decay=0.9)
    for name, value in student.state_dict().items():
        expected = 0.9 * before[name] + 0.1 * value if value.is_floating_point() else value
        torch.testing.assert_close(teacher.state_dict()[name], expected)
    assert not any(p.requires_grad for p in teacher.parameters())


def test_pretrained_and_new_parameters_have_their_own_rates():
    """Every parameter is in exactly one group; without pretrained weights there is one group."""
    model, config = small(), Optimiser(learning_rate=4e-4, learning_rate_pretrained=1e-4)
    new, pretrained = optimiser_for(model, config, list(model.encoder.parameters())).param_groups
    assert (new["lr"], pretrained["lr"]) == (4e-4, 1e-4)
    assert (new["weight_decay"], pretrained["weight_decay"]) == (1e-4, 2.5e-5)
    assert {id(p) for p in pretrained["params"]} == {id(p) for p in model.encoder.parameters()}
    assert len(new["params"]) + len(pretrained["params"]) == len(list(model.parameters()))
    assert len(optimiser_for(model, config).param_groups) == 1


@pytest.mark.parametrize(
    ("schedule", "halfway"), [("quarter-cosine", 0.5**0.5), ("polynomial", 0.5**0.9), ("constant", 1.0)]
)
def test_schedules(schedule, halfway):
    """cos(eπ/2), (1 − e)^0.9 and 1, at the start and halfway."""
    optimiser = optimiser_for(small(), Optimiser(learning_rate=1e-3))
    for iteration, factor in ((0, 1.0), (50, halfway)):
        set_learning_rate(optimiser, schedule, iteration, 100)
        assert optimiser.param_groups[0]["lr"] == pytest.approx(1e-3 * factor)


def test_epochs_are_counted_as_the_paper_does():
    """⌊|D_l| / B_l⌋ iterations each, at least one; 200 epochs of Cityscapes are 74,200, and iterations win."""
    assert total_iterations(Train(epochs=200, batch_labelled=8), labelled=2975) == 74_200
    assert total_iterations(Train(epochs=100, batch_labelled=128), labelled=4000) == 3_100
    assert total_iterations(Train(epochs=10, batch_labelled=8), labelled=3) == 10
    assert total_iterations(Train(epochs=10, iterations=7), labelled=100) == 7


def test_alpha_can_wait_for_a_warm_up():
    """Constant by default; zero before a fraction of the run (CAC: 5 of 80 epochs)."""
    assert [alpha_at(Train(alpha=0.5), iteration, 80) for iteration in (0, 79)] == [0.5, 0.5]
    warm = Train(alpha=0.1, consistency_from=5 / 80)
    assert [alpha_at(warm, iteration, 80) for iteration in (0, 4, 5, 79)] == [0, 0, 0.1, 0.1]
