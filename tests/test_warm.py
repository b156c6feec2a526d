"""Before the first step: kernels are compiled side by side and not launched, and a network stays what it was."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from copy import deepcopy

import pytest
import torch
from torch import nn

from oneway.config import Config, Jitter, Model, Train
from oneway.engine import warm
from oneway.models.fuse import fuse
from oneway.models.swiftnet import SwiftNet
from oneway.ops import ahead, rows

SMALL = Config(
    model=Model(width=0.125),
    jitter=Jitter(crop=(32, 32)),
    train=Train(batch_labelled=2, precision="bfloat16"),
)


def test_a_network_stays_what_it_was(monkeypatch):
    """Statistics and gradients: even if all kernels were launched, they would have been those of a copy."""
    passes = []
    monkeypatch.setattr(warm, "compile_ahead", lambda rehearse: passes.append(rehearse()))
    network = fuse(SwiftNet(3, "resnet18", width=0.125))
    before = deepcopy(network.state_dict())
    warm.compile_kernels(network, SMALL, torch.device("cpu"))
    assert passes == [None]
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("changes", [{"jitter": {"crop": None}}, {"model": {"factory": "somewhere:network"}}])
def test_strangers_and_points_are_left_alone(monkeypatch, changes):
    """Whose kernels are not known."""
    monkeypatch.setattr(warm, "compile_ahead", lambda rehearse: pytest.fail("compiles"))
    warm.compile_kernels(nn.Identity(), SMALL.changed(**changes), torch.device("cpu"))


def test_without_triton_nothing_is_done(monkeypatch):
    """Nor with one that compiles only what it launches."""
    monkeypatch.setattr(ahead, "AsyncCompileMode", None)
    ahead.compile_ahead(lambda: pytest.fail("runs"))


class NoDevice:
    """What Triton asks of a GPU before it compiles; nothing can be launched on this one."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


@pytest.mark.slow
@pytest.mark.skipif(ahead.AsyncCompileMode is None, reason="no Triton that compiles ahead")
def test_kernels_are_compiled_and_not_launched(monkeypatch, tmp_path):
    """For a GPU that is not here, by Triton's own compiler; launching anything on it would fail."""
    from triton.runtime import driver

    kernel, usual = rows._norm_sum_parts, ahead.JITFunction.run
    if not isinstance(kernel, ahead.JITFunction):
        pytest.skip("kernels are interpreted here")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", NoDevice())
    monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
    made = []
    ahead.compile_ahead(lambda: made.extend(rows.summed(torch.ones(2, 3, 8), None) for _ in range(2)))
    (compiled,) = kernel.device_caches[0][0].values()
    assert compiled.asm["cubin"]
    assert len(made) == 2
    assert ahead.JITFunction.run is usual


def test_a_resnet_of_ours_is_fused_without_timm():
    """Which takes longer to import than PyTorch, and would be waited for at the start of each training on a GPU."""
    code = (
        "import sys; from oneway.models.swiftnet import SwiftNet; from oneway.models.fuse import FusedNorm, fuse; "
        "network = fuse(SwiftNet(3, 'resnet18', width=0.125)); assert 'timm' not in sys.modules; "
        "assert sum(isinstance(module, FusedNorm) for module in network.modules()) == 33"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_optimisers_learn_without_the_compiler():
    """PyTorch's own import it, to say that they are not to be compiled; what they compute stays the same."""
    code = (
        "import sys, torch; from oneway.config import Optimiser; from oneway.engine.optim import optimiser_for\n"
        "for name in ('sgd', 'adam', 'adamw'):\n"
        "    network = torch.nn.Linear(2, 2); network(torch.ones(1, 2)).sum().backward()\n"
        "    before = network.weight.clone(); optimiser = optimiser_for([network], Optimiser(name=name))\n"
        "    optimiser.step(); optimiser.zero_grad(); assert network.weight.grad is None\n"
        "    assert (network.weight != before).all() and network.weight.requires_grad\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
