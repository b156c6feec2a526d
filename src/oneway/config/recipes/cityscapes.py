"""`cityscapes-half`, `cityscapes` and `cityscapes-coarse`: the paper's semantic segmentation.

`-deeplabv2` and `-deeplabv3plus` are the same with the networks it compares with.

What the paper reaches with them is in `reproduce.tables`. It trains for more epochs the fewer the labels, and so for
the same number of iterations with any of them.
"""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Train

STEPS_PER_EPOCH = 2975 // 8
"""With all labels, in batches of 8."""


def cityscapes_half() -> Config:
    """Half resolution, and a quarter of the labels, as in the paper's ablations; what is not named here is a default.

    Expect 64.8 % with `simple-phtps`, 66.0 % with `mt-phtps` and 61.5 % with `supervised`.
    """
    return Config(
        recipe="cityscapes-half",
        labels="1/4",
        data=Data(name="cityscapes", resolution="half"),
        jitter=Jitter(crop=(448, 448), scale=(1 / 1.5, 1.5)),
        model=Model(weights="imagenet"),
        optimiser=Optimiser(weight_decay=1e-4, weight_decay_pretrained=2.5e-5),
        train=Train(iterations=200 * STEPS_PER_EPOCH, batch_norm="clean"),
    )


def cityscapes() -> Config:
    """Full resolution: larger crops, more scales, and a smaller L2 weight, since consistency regularises too.

    Expect 71.0 % with `simple-phtps`, 72.0 % with `mt-phtps` and 67.3 % with `supervised`.
    """
    return Config(
        recipe="cityscapes",
        labels="1/4",
        data=Data(name="cityscapes", resolution="full"),
        jitter=Jitter(crop=(768, 768), scale=(0.5, 2)),
        model=Model(weights="imagenet"),
        optimiser=Optimiser(weight_decay=2.5e-5, weight_decay_pretrained=6.25e-6),
        train=Train(iterations=250 * STEPS_PER_EPOCH, batch_norm="both"),
    )


def cityscapes_coarse() -> Config:
    """Full resolution, all fine labels, and 20,000 further images without labels.

    Expect 76.5 % with `simple-phtps` and 75.5 % with `mt-phtps`, against 75.8 % and 75.0 % without the further images.
    """
    return cityscapes().changed(recipe="cityscapes-coarse", labels="all", data={"coarse": "images"})


def cityscapes_half_deeplabv2() -> Config:
    """DeepLab v2-RN101 at half resolution: batches of 4, and 100 epochs, since few of its parameters start random.

    The paper's text has the quarter cosine for all networks; its table has `--optimiser.schedule polynomial` for this
    one. Expect 66.4 % with `mt-phtps` and 61.9 % with `supervised`.
    """
    steps_per_epoch = 2975 // 4
    return cityscapes_half().changed(
        recipe="cityscapes-half-deeplabv2",
        model={"name": "deeplabv2"},
        train={"iterations": 100 * steps_per_epoch, "batch_labelled": 4, "batch_unlabelled": 4},
    )


def cityscapes_deeplabv3plus() -> Config:
    """DeepLab v3+-RN50 at full resolution, with the crops, batches and iterations of Lai et al. (CAC).

    The paper measures its time and memory with these settings, and tells no mIoU.
    """
    return Config(
        recipe="cityscapes-deeplabv3plus",
        labels="1/4",
        data=Data(name="cityscapes", resolution="full"),
        jitter=Jitter(crop=(720, 720), scale=(0.5, 1.5)),
        model=Model(name="deeplabv3plus", weights="imagenet"),
        # Only the encoder has an L2 weight.
        optimiser=Optimiser(
            name="sgd",
            learning_rate=0.1,
            learning_rate_pretrained=0.01,
            weight_decay=0,
            weight_decay_pretrained=1e-4,
            momentum=0.9,
            nesterov=False,
            schedule="polynomial",
        ),
        train=Train(iterations=92_560, batch_labelled=8, batch_unlabelled=8, alpha=0.5, batch_norm="both"),
    )


def supervised_coarse(config: Config) -> Config:
    """As `supervised`, and with the coarse labels of the further images, which other methods would not use."""
    return supervised(config).changed(data={"coarse": "labels"})


def supervised(config: Config) -> Config:
    """A full-resolution recipe as the paper uses it without unlabelled images: with four times the L2 weight."""
    return config.changed(optimiser={"weight_decay": 1e-4, "weight_decay_pretrained": 2.5e-5})
