"""Facts about the ResNets of our own, against timm's."""

from __future__ import annotations

import pytest
import timm
import torch

from forks import run_code
from oneway.models.encoder import STAGE_CHANNELS, pyramid_encoder
from oneway.models.resnet import DEPTHS, ResNet


@pytest.mark.parametrize("width", [1, 0.25])
@pytest.mark.parametrize("name", DEPTHS)
def test_a_resnet_begins_as_timms_does(name, width):
    """The same tensors under the same names, and as many random numbers drawn: seeds mean what they meant."""
    channels = tuple(round(width * count) for count in STAGE_CHANNELS)
    torch.manual_seed(5)
    theirs, drawn = timm.create_model(name, num_classes=0, channels=channels), torch.rand(1)
    torch.manual_seed(5)
    ours = ResNet(DEPTHS[name], channels)
    assert torch.equal(torch.rand(1), drawn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(ours.state_dict()[key], value) for key, value in theirs.state_dict().items())


@pytest.mark.parametrize("name", DEPTHS)
def test_features_are_the_sums_of_timms_network(name):
    """Those that its next stage gets, before they are rectified; and so are the gradients of the stem."""
    encoder = pyramid_encoder(name, width=0.25)
    reference = timm.create_model(name, num_classes=0, global_pool="", channels=(16, 32, 64, 128))
    for parameter in encoder.net.parameters():  # last norms begin at zero, which would hide most of the network
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    reference.load_state_dict(encoder.net.state_dict())
    x, gradients = torch.rand(2, 3, 45, 70), []
    features = encoder(x)
    _, theirs = reference.forward_intermediates(x)
    for found, rectified in zip(features, theirs[1:], strict=True):
        assert torch.equal(found.relu(), rectified)
    assert encoder.channels == tuple(feature.shape[1] for feature in features)
    for network, last in ((encoder.net, features[-1].relu()), (reference, theirs[-1])):
        last.square().mean().backward()
        gradients.append(network.conv1.weight.grad)
    assert torch.equal(*gradients)


def test_the_usual_network_is_there_without_timm():
    """That imports torchvision, which imports PyTorch's compiler: two seconds of every verb."""
    lines = [
        "import sys",
        "import torch",
        "from oneway import models",
        "from oneway.config import Model",
        "import oneway.tools.evaluate, oneway.tools.report, oneway.tools.suggest, oneway.tools.predict",
        "models.build(Model(), 9, 0)",
        "with torch.device('meta'):",  # as a model's file is checked
        "    models.build(Model(), 9, 0)",
        "print(*{'timm', 'torchvision', 'torch._dynamo', 'sympy', 'huggingface_hub'} & sys.modules.keys())",
    ]
    assert run_code("\n".join(lines)) == ""
