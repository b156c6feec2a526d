"""`streets`: the embedded data, sized for a laptop's CPU."""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Train


def streets() -> Config:
    """Half-width SwiftNet on 64×128 scenes, 8 of 400 labelled: minutes on two cores.

    So short a run, from random weights, wants a higher learning rate and a heavier consistency loss than the paper's
    long ones. Expected after 600 iterations: see docs/results/quickstart.md.
    """
    return Config(
        recipe="streets",
        labels="8",
        data=Data(name="streets", size=(64, 128), images=400),
        jitter=Jitter(crop=(64, 128), scale=(1 / 1.5, 1.5)),
        model=Model(backbone="resnet18", width=0.5),
        optimiser=Optimiser(learning_rate=2e-3),
        train=Train(iterations=600, batch_labelled=8, batch_unlabelled=8, alpha=1.0, validate_every=100),
    )
