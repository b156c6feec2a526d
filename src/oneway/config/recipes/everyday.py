"""`voc`, `ade20k` and `coco-stuff`: the data sets of everyday photographs on which the field compares methods.

Settings are those that the authors of UniMatch publish: DeepLab v3+ from ImageNet weights, SGD with a tenth of the rate
for the encoder, scales from a half to two, batches of 8 labelled and 8 unlabelled images. Images are evaluated whole,
at their own resolution. Published lists of labelled images are read as they are, with `--labels FILE`: those of
UniMatch (an image and its mask on each line), of U2PL and of CPS (a name on each line).
"""

from __future__ import annotations

from oneway.config import Config, Data, Jitter, Model, Optimiser, Train


def voc() -> Config:
    """Pascal VOC 2012 with SBD's masks: crops of 321×321; an eighth of the 10,582 images labelled.

    UniMatch counts 80 epochs of its unlabelled images, 105,000 iterations. For crops of 513, `--jitter.crop 513 513`.
    """
    return Config(
        recipe="voc",
        method="unimatch",
        labels="1/8",
        data=Data(name="voc"),
        jitter=Jitter(crop=(321, 321), scale=(0.5, 2)),
        model=Model(name="deeplabv3plus", backbone="resnet101", weights="imagenet"),
        optimiser=Optimiser(
            name="sgd",
            learning_rate=0.01,
            learning_rate_pretrained=0.001,
            weight_decay=1e-4,
            weight_decay_pretrained=1e-4,
            momentum=0.9,
            nesterov=False,
            schedule="polynomial",
        ),
        train=Train(iterations=105_000, batch_labelled=8, batch_unlabelled=8, alpha=1.0, batch_norm="both"),
    )


def coco_stuff() -> Config:
    """COCO-Stuff, 171 classes: crops of 513×513; a 64th of the 118,287 images labelled.

    Rates and crops are UniMatch's for COCO; 30 epochs of it are 440,000 iterations.
    """
    return voc().changed(
        recipe="coco-stuff",
        labels="1/64",
        data={"name": "coco-stuff"},
        jitter={"crop": (513, 513)},
        optimiser={"learning_rate": 0.04, "learning_rate_pretrained": 0.004},
        train={"iterations": 440_000},
    )


def ade20k() -> Config:
    """ADE20K, 150 classes: as `coco-stuff`, with an eighth of the 20,210 images labelled, and 40 epochs of them."""
    return coco_stuff().changed(
        recipe="ade20k", labels="1/8", data={"name": "ade20k"}, train={"iterations": 40 * 20_210 // 8}
    )
