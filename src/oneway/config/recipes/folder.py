"""`folder`: images of your own, with masks for some of them."""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Train


def folder() -> Config:
    """SwiftNet-RN18 from ImageNet weights, all masks in use, and a mean teacher with strongly perturbed students.

    The method is the one that gains on photographs (docs/methods/mt-colour-cutmix-drop.md); the rest are the paper's
    settings for images of middling size, with a quarter of the decoder's rate for the encoder. Expect a first answer:
    how well the classes can be told apart, and with `--compare` what unlabelled images bring. For the best model, add
    `--preset best`, and choose a `--jitter.crop` in which objects are seen with what surrounds them.
    """
    return Config(
        recipe="folder",
        method="mt-colour-cutmix-drop",
        labels="all",
        data=Data(name="folder", reduction="auto"),
        jitter=Jitter(crop=(352, 352), fit=True, scale=(1 / 1.5, 1.5)),
        model=Model(weights="imagenet"),
        optimiser=Optimiser(learning_rate=4e-4, learning_rate_pretrained=1e-4, weight_decay=1e-4),
        train=Train(iterations=2000, batch_labelled=8, batch_unlabelled=8, alpha=0.5),
    )
