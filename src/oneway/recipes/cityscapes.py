"""`cityscapes-half`, `cityscapes` and `cityscapes-coarse`: the paper's semantic segmentation.

Its SwiftNet-RN18 on Cityscapes val, mean mIoU of five splits in percent, at the end of training:

| recipe            | method         | 1/8  | 1/4  | 1/2  | all  |
|-------------------|----------------|------|------|------|------|
| `cityscapes-half` | `supervised`   | 55.5 | 61.5 | 66.9 | 70.5 |
|                   | `simple-phtps` | 60.8 | 64.8 | 68.8 | 71.1 |
|                   | `mt-phtps`     | 62.0 | 66.0 | 69.1 | 71.2 |
| `cityscapes`      | `supervised`   | 61.1 | 67.3 | 71.9 | 75.4 |
|                   | `simple-phtps` | 66.3 | 71.0 | 74.3 | 75.8 |
|                   | `mt-phtps`     | 68.6 | 72.0 | 73.8 | 75.0 |
| and `-coarse`     | `simple-phtps` |      |      |      | 76.5 |
|                   | `mt-phtps`     |      |      |      | 75.5 |

The paper trains for more epochs the fewer the labels, and so for the same number of iterations with any of them.
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

    Expect 76.5 % with `simple-phtps`, against 75.8 % without the further images.
    """
    data = Data(name="cityscapes", resolution="full", coarse="images")
    return cityscapes().model_copy(update={"recipe": "cityscapes-coarse", "labels": "all", "data": data})


def supervised_coarse(config: Config) -> Config:
    """The same; and the further images come with their coarse labels, which nothing else would use."""
    data = config.data.model_copy(update={"coarse": "labels"})
    return supervised(config).model_copy(update={"data": data})


def supervised(config: Config) -> Config:
    """A full-resolution recipe as the paper uses it without unlabelled images: with four times the L2 weight."""
    decays = {"weight_decay": 1e-4, "weight_decay_pretrained": 2.5e-5}
    return config.model_copy(update={"method": "supervised", "optimiser": config.optimiser.model_copy(update=decays)})
