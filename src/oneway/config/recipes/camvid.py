"""`camvid`: small road scenes, for experiments in hours that take days on Cityscapes."""

from __future__ import annotations

from oneway.config import Config
from oneway.config.recipes.folder import folder


def camvid() -> Config:
    """SwiftNet-RN18 from ImageNet weights on 480×360 frames, 45 of 367 labelled.

    Settings are the paper's for half-resolution Cityscapes, with its lower learning rate for the encoder, but for
    smaller crops, fewer iterations and the method, which is that of `folder`. Frames are from video: labelled ones
    resemble many of the unlabelled and validation ones. To tell methods apart, hold out a drive
    (`--data.holdout-drive 0006R0`).
    """
    return folder().changed(recipe="camvid", labels="1/8", data={"name": "camvid", "reduction": 1})
