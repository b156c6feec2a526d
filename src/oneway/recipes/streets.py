"""`streets`: the embedded data, sized for a laptop's CPU."""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Train


def streets() -> Config:
    """Half-width SwiftNet on 64×128 scenes."""
    return Config(
        recipe="streets",
        labels="12",
        data=Data(name="streets", size=(64, 128), images=400),
        jitter=Jitter(crop=(64, 128), scale=(1 / 1.5, 1.5)),
        model=Model(backbone="resnet18", width=0.5),
        optimiser=Optimiser(learning_rate=1e-3),
        train=Train(iterations=500, batch_labelled=8, batch_unlabelled=8),
    )
