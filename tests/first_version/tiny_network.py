"""The network of the first version's run: small enough to be kept with the tests."""

from torch import nn


def tiny(classes: int) -> nn.Module:
    """Logits at stride 4."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, classes, 3, 2, 1)
    )
