"""Networks with few channels train on a CPU at any size of crops."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from oneway.models.onednn_workaround import Subsampled, avoid_onednn_overrun
from processes import forked


def test_a_narrow_network_trains_on_large_crops(tmp_path):
    """PyTorch crashed in the backward pass of a shortcut with eight channels."""
    words = (
        "--data.images 4 --data.size 256 256 --jitter.crop 256 256 --model.width 0.125 --labels 2 --train.iterations 1"
    )
    batches = ("--train.batch-labelled", 2, "--train.batch-unlabelled", 2)
    done = forked("train", "streets", *words.split(), *batches, "--out", "run", cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("side", [32, 63, 64])
@pytest.mark.parametrize("channels", [4, 15])
def test_it_is_the_same_convolution(channels, side):
    """Values and gradients are PyTorch's in double precision, which oneDNN has no part in."""
    plain = nn.Sequential(nn.Conv2d(channels, 16, 1, stride=2), nn.Conv2d(16, 3, 1, stride=2)).double()
    ours = avoid_onednn_overrun(deepcopy(plain)).float().to(memory_format=torch.channels_last)
    assert [type(layer) for layer in ours] == [Subsampled, nn.Conv2d]
    assert list(ours.state_dict()) == list(plain.state_dict())
    x = torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0))
    results = []
    for network, given in ((plain, x.double()), (ours, x.to(memory_format=torch.channels_last))):
        given.requires_grad_()
        y = network(given)
        y.square().sum().backward()
        results.append([y, given.grad, *(parameter.grad for parameter in network.parameters())])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
