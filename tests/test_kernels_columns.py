"""Facts about norms of few rows, against PyTorch's own in double precision, in a process of their own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_facts import DEVICE, assert_facts
from norm_facts import EPS, SHAPES, affine, assert_agree, batches, plain, random, value_and_gradients
from oneway.ops import columns
from oneway.ops.columns import column_norm
from oneway.ops.norm import norm
from oneway.ops.statistics import Running

pytestmark = pytest.mark.slow

ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "relu6": F.relu6, "silu": F.silu}


def test_facts_hold():
    """Everything below."""
    assert_facts(__file__, "fact_columns")


@pytest.fixture(params=[64, 1024], ids=["several tiles", "one tile or two"])
def rows(request, monkeypatch) -> None:
    """Programs that go through several tiles, and such that have one or two."""
    monkeypatch.setattr(columns, "ROWS", request.param)
    monkeypatch.setattr(columns, "ROWS_BACK", request.param // 2)


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    ("name", "with_residual"), [*((name, False) for name in ACTIVATIONS), ("none", True), ("relu", True)]
)
def fact_columns_are_pytorchs(shape, name, with_residual):
    """f(batch_norm(x) + residual): its value, and the gradients of all that goes in."""
    residual = [random(*shape, seed=5)] if with_residual else []
    weight, bias = affine(shape[1])
    assert_agree(
        lambda x, w, b, *r: column_norm(x, w, b, None, EPS, name, *r),
        lambda x, w, b, *r: ACTIVATIONS[name](sum(r, plain(x, w, b, None))),
        2 * random(*shape) + 1,
        2 * weight,
        bias,
        *residual,
    )


@pytest.mark.usefixtures("rows")
def fact_columns_move_running_statistics_as_pytorch_does():
    """Over two batches; a small variance survives a large mean."""
    layer = nn.BatchNorm2d(16, momentum=0.3).double().to(DEVICE)
    running = Running(layer.running_mean.float(), layer.running_var.float(), batches(), 0.3)
    for seed in (1, 2):
        x = 100 + 0.1 * random(3, 16, 33, 37, seed=seed)
        column_norm(x, *affine(16), running, EPS)
        layer(x.double())
    torch.testing.assert_close(running.mean.double(), layer.running_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(running.variance.double(), layer.running_var, rtol=1e-4, atol=0)
    assert running.batches == layer.num_batches_tracked == 2


@pytest.mark.parametrize("with_residual", [True, False])
def fact_columns_in_bfloat16_only_round_what_goes_in_and_out(with_residual):
    """Single precision between."""
    x, residual = random(2, 16, 9, 11).bfloat16(), random(2, 16, 9, 11, seed=5).bfloat16()
    inputs = [x, *affine(16), *([residual] if with_residual else [])]
    found = value_and_gradients(lambda x, w, b, *r: column_norm(x, w, b, None, EPS, "relu", *r), *inputs)
    expected = value_and_gradients(
        lambda x, w, b, *r: F.relu(sum(r, plain(x, w, b, None))), *(tensor.double() for tensor in inputs)
    )
    assert [tensor.dtype for tensor in found[:4]] == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2**-7, atol=2**-8 * b.abs().max().item())


def fact_columns_are_chosen_for_few_rows(monkeypatch):
    """In training alone; a layer that counts its batches has counted one either way."""
    found, layer, x = [], nn.BatchNorm2d(16).to(DEVICE), random(2, 16, 9, 11)
    for most, batches_seen in ((4096, 1), (100, 2)):
        monkeypatch.setattr(columns, "MOST_ROWS", most)
        found.append(norm(x, layer, "relu"))
        assert layer.num_batches_tracked == batches_seen
    torch.testing.assert_close(*found)
    layer.eval()
    torch.testing.assert_close(norm(x, layer), nn.BatchNorm2d.forward(layer, x))
