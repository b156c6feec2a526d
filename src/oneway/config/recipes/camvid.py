"""`camvid`: small road scenes, for experiments in hours that take days on Cityscapes."""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Train


def camvid() -> Config:
    """SwiftNet-RN18 from ImageNet weights on 480×360 frames, 45 of 367 labelled.

    Settings are the paper's for half-resolution Cityscapes, with its lower learning rate for the encoder, but for
    smaller crops, fewer iterations and the method, which is that of `folder`. Frames are from video: labelled ones
    resemble many of the unlabelled and validation ones. To tell methods apart, hold out a drive
    (`--data.holdout-drive 0006R0`).
    """
    return Config(
        recipe="camvid",
        method="mt-colour-cutmix",
        labels="1/8",
        data=Data(name="camvid"),
        jitter=Jitter(crop=(352, 352), scale=(1 / 1.5, 1.5)),
        model=Model(weights="imagenet"),
        optimiser=Optimiser(learning_rate=4e-4, learning_rate_pretrained=1e-4, weight_decay=1e-4),
        train=Train(iterations=4000, batch_labelled=8, batch_unlabelled=8, alpha=0.5),
    )
