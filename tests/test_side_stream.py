"""A teacher beside the student: without a second stream it is asked at once, and never about statistics in motion."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
from oneway.ops import on_side_stream

X = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_a_cpu_computes_at_once():
    """What is returned gives the result, as often as it is called, and computes nothing again."""
    seen = []
    wait = on_side_stream(lambda x: seen.append(x) or x + 1, X)
    assert len(seen) == 1
    assert torch.equal(wait(), X + 1)
    assert wait() is wait()
    assert len(seen) == 1


@pytest.mark.parametrize("policy", ["clean", "both", "frozen"])
def test_a_simple_teacher_sees_the_statistics_before_the_students_move_them(policy):
    """Its logits are those that it had before a perturbed student was asked."""
    network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    models = Models((network,), (network,), NormPolicy(policy))
    expected = models.teacher(X)
    wait = models.teacher_on_side_stream(X)
    models.student(2 * X + 1, clean=False)
    assert torch.equal(wait(), expected)
    assert not wait().requires_grad
