"""`moons`: the paper's toy problem, 6 labelled and 154 unlabelled points."""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Perturb, Train


def moons() -> Config:
    """20,000 full-batch steps with Adam's default settings; the perturbation is Gaussian noise."""
    return Config(
        recipe="moons",
        method="simple-noise",
        labels="6",
        data=Data(name="moons"),
        jitter=Jitter(crop=None, flip=False),
        perturb=Perturb(noise=0.2),
        model=Model(name="mlp"),
        optimiser=Optimiser(learning_rate=1e-3, weight_decay=0, betas=(0.9, 0.999), schedule="constant"),
        # On the CPU: the steps are too small for anything else.
        train=Train(iterations=20_000, batch_labelled=6, batch_unlabelled=160, alpha=1.0, log_every=1000, device="cpu"),
    )
