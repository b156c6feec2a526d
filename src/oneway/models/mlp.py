"""A small multi-layer perceptron for points in the plane."""

from __future__ import annotations

from torch import Tensor, nn

HIDDEN = 64


class Perceptron(nn.Module):
    """N×C logits of N×2 points: two hidden layers with rectifiers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
