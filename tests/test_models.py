"""Facts about every network, and about SwiftNet, batch-norm policies, the mean teacher and the optimiser."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F

from forks import run_code
from oneway.config import Model, Optimiser, Train
from oneway.engine.optim import alpha_at, optimiser_for, set_learning_rate
from oneway.models import build
from oneway.models.ema import init_ema, update_ema
from oneway.models.norm import (
    NormPolicy,
    frozen_statistics,
    minibatch_statistics,
    population_statistics,
    student_statistics,
    teacher_statistics,
    untracked_statistics,
)
from oneway.models.swiftnet import SwiftNet


def small(seed: int = 0, **settings: Any) -> SwiftNet:
    model = build(Model(width=0.125, **settings), classes=5, seed=seed)
    assert isinstance(model, SwiftNet)
    return model


def awakened(model: SwiftNet) -> SwiftNet:
    """Residual branches start at zero (timm's initialisation); give them weight, as the first steps of training do."""
    for name, parameter in model.named_parameters():
        if name.endswith(("bn2.weight", "bn3.weight")):
            torch.nn.init.ones_(parameter)
    return model


@pytest.mark.parametrize(("backbone", "parameters"), [("resnet18", 11_797_071), ("resnet34", 21_905_231)])
def test_parameter_counts_are_the_papers(backbone, parameters):
    """11.80 M and 21.91 M with 19 classes."""
    assert sum(p.numel() for p in SwiftNet(19, backbone).parameters()) == parameters


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "resnet50.a1_in1k"])
def test_features_are_residual_sums_before_the_last_rectification(backbone):
    """Rectified, our features are those of timm's own ResNet; unrectified, they go below zero."""
    model = awakened(small(backbone=backbone)).eval()
    channels = tuple(round(0.125 * stage) for stage in (64, 128, 256, 512))
    reference = timm.create_model(backbone, channels=channels, features_only=True).eval()
    reference.load_state_dict(model.encoder.net.state_dict())
    x = torch.randn(1, 3, 64, 64)
    for ours, timms in zip(model.encoder(x), reference(x)[1:], strict=True):
        assert ours.min() < 0
        torch.testing.assert_close(F.relu(ours), timms)


CONTRACT = {
    "swiftnet": (Model(width=0.125), 4),
    "swiftnet on resnet50": (Model(backbone="resnet50", width=0.125), 4),
    "swiftnet on mobilenet": (Model(backbone="mobilenetv4_conv_small_035"), 4),
    "deeplabv2": (Model(name="deeplabv2", width=0.125), 8),
    "deeplabv3plus": (Model(name="deeplabv3plus", width=0.125), 4),
    "wrn-28-2": (Model(name="wrn-28-2"), None),
}
"""Every kind of network, and the stride of its logits; None where there is one prediction for an image."""


@pytest.fixture(params=CONTRACT)
def contract(request) -> tuple[Model, int | None]:
    return CONTRACT[request.param]


def made(config: Model, seed: int = 0) -> torch.nn.Module:
    """A network whose parameters are all at work: some start at zero, and hide others from the gradient."""
    network = build(config, classes=5, seed=seed)
    torch.manual_seed(0)
    for parameter in network.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    return network


@pytest.mark.parametrize("size", [(64, 128), (77, 113)])
def test_one_image_of_any_size_gets_logits_at_the_stride(contract, size):
    """In evaluation mode, and where the stride does not divide the size, rounded to either side."""
    config, stride = contract
    with torch.no_grad():
        logits = build(config, classes=5, seed=0).eval()(torch.rand(1, 3, *size))
    assert logits.shape[:2] == (1, 5)
    assert logits.isfinite().all()
    assert len(logits.shape) == (2 if stride is None else 4)
    for pixels, cells in zip(size, logits.shape[2:], strict=False):
        assert pixels // stride <= cells <= -(-pixels // stride)


def test_gradient_reaches_every_parameter(contract):
    """Nothing is built that does not train."""
    model = made(contract[0]).train()
    model(torch.rand(2, 3, 96, 128)).square().mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_layout_of_memory_changes_nothing(contract):
    """Channels last, the layout of the fast convolutions, gives the same logits up to rounding."""
    model, x = made(contract[0]).eval(), torch.rand(2, 3, 64, 96)
    with torch.no_grad():
        expected = model(x)
        model = model.to(memory_format=torch.channels_last)
        torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected, atol=1e-4, rtol=1e-3)


def test_tensors_are_all_there_is_to_a_network(contract):
    """Saved and loaded into a network of another seed, they give the same logits, bit by bit."""
    first, second = made(contract[0], seed=0).eval(), made(contract[0], seed=1).eval()
    x = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        assert not torch.equal(first(x), second(x))
        second.load_state_dict(safetensors.torch.load(safetensors.torch.save(first.state_dict())))
        assert torch.equal(first(x), second(x))


def test_initial_weights_are_a_function_of_the_seed(contract):
    """And building a network leaves the global generator alone."""
    before = torch.random.get_rng_state()
    first, again, other = (build(contract[0], 5, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_normalisation_is_inside(contract):
    """Mean and deviation travel with the weights, and a shift and a scale of both leave the logits as they are."""
    model, x = made(contract[0]).eval(), torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        expected = model(x)
        model.load_state_dict({"mean": model.mean * 2 + 1, "deviation": model.deviation * 2}, strict=False)
        torch.testing.assert_close(model(x * 2 + 1), expected, atol=1e-4, rtol=1e-3)


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


def test_frozen_statistics_normalise_and_only_scale_and_shift_learn():
    """Logits are those of evaluation, no running statistic moves, every parameter has a gradient."""
    model = awakened(small()).train()
    model(torch.rand(3, 3, 64, 64))  # statistics of their own
    before, x = buffers(model), torch.rand(3, 3, 64, 64)
    with frozen_statistics(model):
        frozen = model(x)
        frozen.square().mean().backward()
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert all(module.training for module in model.modules())
    assert torch.equal(frozen, model.eval()(x))


@pytest.mark.parametrize("role", ["student", "simple teacher"])
@pytest.mark.parametrize(
    ("policy", "clean", "moves", "of_batch"),
    [
        ("clean", True, True, True),
        ("clean", False, False, True),
        ("both", True, True, True),
        ("both", False, True, True),
        ("frozen", True, False, False),
        ("frozen", False, False, False),
    ],
)
def test_the_policy_says_which_inputs_move_the_statistics(role, policy, clean, moves, of_batch):
    """And whether an image is normalised by the mini-batch it comes in, or always alike.

    A simple teacher that uses its batch does as the student would that it is.
    """
    model = small(backbone="resnet18").train()
    before, x = buffers(model), torch.rand(3, 3, 64, 64)
    norms = NormPolicy(policy, "batch")
    student, teacher = student_statistics(model, norms, clean), teacher_statistics(model, model, norms, clean)
    with student if role == "student" else teacher:
        logits = model(x)
    assert any(not torch.equal(before[name], buffer) for name, buffer in model.named_buffers()) == moves
    assert all(module.training for module in model.modules())
    model.load_state_dict(before, strict=False)
    assert torch.equal(model.eval()(x), logits) != of_batch


def test_a_mean_teacher_never_uses_its_batch():
    """What it normalises with are averages, like its weights."""
    student, teacher, x = small(0).train(), init_ema(small(1)), torch.rand(3, 3, 64, 64)
    expected = teacher(x)
    with teacher_statistics(teacher, student, NormPolicy("clean", "batch"), clean=True):
        assert torch.equal(teacher(x), expected)


def test_a_teacher_that_uses_its_batch_drops_nothing():
    """Only norms are in training mode: a target is not to be noisy."""
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Dropout(0.5)).train()
    x = torch.rand(4, 3, 8, 8)
    with minibatch_statistics(model, tracked=False):
        torch.testing.assert_close(model(x), torch.nn.functional.batch_norm(x, None, None, training=True))


def test_layers_in_a_mode_of_their_own_keep_it():
    """A network may freeze parts of itself; the teacher's turn does not wake them."""
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3).eval(), torch.nn.BatchNorm2d(3, track_running_stats=False))
    contexts = (
        population_statistics,
        untracked_statistics,
        frozen_statistics,
        partial(minibatch_statistics, tracked=False),
    )
    for context in contexts:
        with context(model):
            model(torch.rand(2, 3, 4, 4))
        assert [module.training for module in model] == [False, True]
        assert [module.track_running_stats for module in model] == [True, False]


def test_mean_teacher_averages_parameters_and_statistics():
    """θ' = decay·θ' + (1 − decay)·θ for every floating tensor; counters follow the student."""
    student = small(0).train()
    teacher = init_ema(small(1))
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    student(torch.rand(2, 3, 64, 64))  # moves the running statistics
    update_ema(teacher, student, share=torch.tensor(0.1))
    for name, value in student.state_dict().items():
        expected = 0.9 * before[name] + 0.1 * value if value.is_floating_point() else value
        torch.testing.assert_close(teacher.state_dict()[name], expected)
    assert not any(p.requires_grad for p in teacher.parameters())


def test_pretrained_and_new_parameters_have_their_own_rates():
    """Every parameter is in exactly one group; without pretrained weights there is one group."""
    model, config = small(), Optimiser(learning_rate=4e-4, learning_rate_pretrained=1e-4)
    new, pretrained = optimiser_for([model], config, list(model.encoder.parameters())).param_groups
    assert (new["lr"], pretrained["lr"]) == (4e-4, 1e-4)
    assert (new["weight_decay"], pretrained["weight_decay"]) == (1e-4, 2.5e-5)
    assert {id(p) for p in pretrained["params"]} == {id(p) for p in model.encoder.parameters()}
    assert len(new["params"]) + len(pretrained["params"]) == len(list(model.parameters()))
    assert len(optimiser_for([model], config).param_groups) == 1


@pytest.mark.parametrize(
    ("schedule", "halfway"),
    [("quarter-cosine", 0.5**0.5), ("polynomial", 0.5**0.9), ("steps", 0.2), ("constant", 1.0)],
)
def test_schedules(schedule, halfway):
    """cos(eπ/2), (1 − e)^0.9, a fifth for every step that was passed, and 1, at the start and halfway."""
    optimiser = optimiser_for([small()], Optimiser(learning_rate=1e-3))
    for iteration, factor in ((0, 1.0), (50, halfway)):
        set_learning_rate(optimiser, schedule, iteration, 100)
        assert optimiser.param_groups[0]["lr"] == pytest.approx(1e-3 * factor)


def test_epochs_are_counted_as_the_paper_does():
    """⌊|D_l| / B_l⌋ iterations each, at least one; 200 epochs of Cityscapes are 74,200, and iterations win."""
    assert Train(epochs=200, batch_labelled=8).total_iterations(labelled=2975) == 74_200
    assert Train(epochs=100, batch_labelled=128).total_iterations(labelled=4000) == 3_100
    assert Train(epochs=10, batch_labelled=8).total_iterations(labelled=3) == 10
    assert Train(epochs=10, iterations=7).total_iterations(labelled=100) == 7


def test_alpha_can_wait_for_a_warm_up():
    """Constant by default; zero before a fraction of the run (CAC: 5 of 80 epochs)."""
    assert [alpha_at(Train(alpha=0.5), iteration, 80) for iteration in (0, 79)] == [0.5, 0.5]
    warm = Train(alpha=0.1, consistency_from=5 / 80)
    assert [alpha_at(warm, iteration, 80) for iteration in (0, 4, 5, 79)] == [0, 0, 0.1, 0.1]


def test_a_network_is_imported_when_it_is_asked_for():
    """Two moons do not wait for timm, which takes as long as PyTorch itself."""
    run_code("import sys, oneway.tools.train; assert not {'timm', 'torchvision'} & sys.modules.keys()")
