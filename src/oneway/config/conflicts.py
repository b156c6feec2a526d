"""Conflicts between settings that are valid one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oneway.common.words import listed
from oneway.config.tree import Config, Data
from oneway.methods import METHODS, VARIANTS

SEGMENTERS = ("swiftnet", "deeplabv2", "deeplabv3plus", "vit")
"""The networks that segment; all of them have an encoder of timm's."""

CLASSIFIERS = {"cifar10": "wrn-28-2", "moons": "mlp"}
"""The network for each data set of image classification."""

EMBEDDED = ("streets", "moons")


def conflicts(config: Config) -> Iterator[str]:
    """Conflicts between settings, each as a message with a way out."""
    yield from _method_conflicts(config)
    yield from _model_conflicts(config)
    yield from _norm_conflicts(config)
    if (config.jitter.crop is None) != (config.data.name == "moons"):
        yield "jitter.crop is for images, and every image needs it; the points of moons have none"
    if config.jitter.crop is None and METHODS[config.method].of_images:
        yield f"method {config.method} perturbs images, and {config.data.name} has points; use simple-noise"


def _method_conflicts(config: Config) -> Iterator[str]:
    """Conflicts of a method and its variant with one another, with the data and with the batch."""
    method, variant = METHODS[config.method], VARIANTS[config.variant]
    chosen = f"variant {config.variant} with method {config.method}"
    if variant.two_way and method.teacher == "mean":
        yield (
            f"{chosen}: both branches would learn, but a mean teacher is an average and gets no gradient; "
            "use a simple-… method or a 1w-… variant"
        )
    if method.mixes and not variant.first_is_clean and config.data.task == "classification":
        yield f"{chosen}: predictions for whole images cannot be unmixed; use 1w-ct, 1w-cs or 2w-c1"
    if method.loss.startswith("confident") and variant.first_learns:
        yield f"{chosen}: hard targets carry no gradient, so the branch that makes them cannot learn; use 1w-ct"
    if not (method.variants or method.supervised) and config.variant != "1w-ct":
        yield f"{chosen}: the method has no variants, it decides itself which branch learns; use 1w-ct"
    if method.segments and config.data.task == "classification":
        yield f"method {config.method} segments images, and {config.data.name} has one class for each input"
    if config.teacher is not None and not (method.taught and variant.views == 1 and not variant.two_way):
        yield (
            f"teacher {config.teacher}: {chosen} does not learn from the clean predictions of one teacher; use a "
            f"method such as mt-colour-cutmix with variant 1w-ct"
        )
    if method.augment and not method.augment_all and config.train.batch_labelled < 2:
        yield f"method {config.method} perturbs half of the labelled images of a batch; use --train.batch-labelled 2"
    if method.needs_pairs and config.jitter.crop is not None and any(side % 8 for side in config.jitter.crop):
        height, width = config.jitter.crop
        yield f"method {config.method} compares cells of 8×8 pixels, and jitter.crop is {height} {width}; use multiples"
    if method.mixes_labelled and config.train.batch_labelled < 4:
        yield f"method {config.method} mixes pairs in half of a batch with labels; use --train.batch-labelled 4"
    if method.mixes_labelled and config.data.task == "classification":
        yield f"method {config.method} mixes labels of pixels, and {config.data.name} has one class for each input"
    if method.mixes and config.train.batch_unlabelled < 2:
        yield f"method {config.method} mixes pairs of images; use --train.batch-unlabelled 2"


def _model_conflicts(config: Config) -> Iterator[str]:
    """Conflicts between the network and other settings."""
    model, name = config.model, config.model.name
    own = model.factory is not None
    segments = name in SEGMENTERS
    backbone = model.backbone or ("vit" if name == "vit" else "resnet18")
    narrows = segments and re.fullmatch(r"resnet\d+[cdst]?(\..+)?", backbone)
    fitting = SEGMENTERS if config.data.task == "segmentation" else (CLASSIFIERS[config.data.name],)
    if own and config.data.name == "moons":
        yield "model.factory makes networks for images, and moons has points; leave it out"
    if not own and name not in fitting:
        yield f"model {name} does not fit the labels of {config.data.name}; use {listed(fitting, None, 'or')}"
    if model.weights == "imagenet" and (own or not segments):
        having = f"what {model.factory} makes" if own else name
        yield (
            f"model.weights imagenet fills the encoder of {listed(SEGMENTERS, None, 'or')}, and {having} is none of "
            "them; use --model.weights none"
        )
    if model.weights == "imagenet" and model.width != 1 and not own and narrows:
        yield (
            f"model.width {model.width} makes a narrower network, and ImageNet weights are of the whole one; use "
            "--model.weights none, or --model.width 1"
        )
    if model.backbone is not None and not own and not segments:
        yield f"model.backbone is for {listed(SEGMENTERS, None)}, and {name} has none; use --model.backbone none"
    if model.width != 1 and not own and not narrows:
        yield (
            f"model.width {model.width} is for ResNets, and {model.backbone or name} comes in one width; "
            "use --model.width 1"
        )
    if config.optimiser.layer_decay != 1 and not own and name != "vit":
        yield (
            f"optimiser.layer_decay lowers the learning rate from block to block of a vit, and {name} is no vit; "
            "use --optimiser.layer-decay 1"
        )


def _norm_conflicts(config: Config) -> Iterator[str]:
    """Conflicts of batch norm with the network, its weights, the batch and the teacher."""
    model, train, method = config.model, config.train, METHODS[config.method]
    own = model.factory is not None
    if train.batch_norm == "frozen" and model.weights is None and not own:
        yield (
            "train.batch_norm frozen keeps the batch-norm statistics of model.weights, and there are none: statistics "
            "of random weights would be useless; give --model.weights, or use --train.batch-norm clean"
        )
    alone = train.batch_labelled < 2 or (train.batch_unlabelled < 2 and not method.supervised)
    if model.name == "deeplabv3plus" and not own and alone and train.batch_norm != "frozen":
        yield (
            "deeplabv3plus has a batch norm of one value per image, which a batch of 1 leaves without a deviation; use "
            "batches of 2 or more"
        )
    if train.teacher_norm == "batch" and method.teacher == "mean":
        yield "train.teacher_norm batch is for simple teachers, a mean teacher has averages; use population"
    if train.teacher_norm == "batch" and train.batch_norm == "frozen":
        yield "train.teacher_norm batch with train.batch_norm frozen: one uses the batch, the other never; choose one"


def unused_settings(data: Data) -> Iterator[str]:
    """Settings that the data set does not use. A new run with one is refused; an old run with one can be opened."""
    if data.path is not None and data.name in EMBEDDED:
        yield f"{data.name} is embedded and reads no folder (data.path {data.path}); for yours, `oneway train folder`"
    if data.unlabelled is not None and data.name in (*EMBEDDED, "cifar10"):
        yield f"data.unlabelled {data.unlabelled}: {data.name} takes no further images; leave it out"
    if data.name != "cityscapes" and (data.resolution, data.coarse) != ("full", "none"):
        yield f"data.resolution and data.coarse are for Cityscapes, and the data are {data.name}; leave them out"
    if data.name != "folder" and data.reduction != 1:
        yield f"data.reduction is for images of your own, and the data are {data.name}; leave it out"
    if data.name != "camvid" and data.holdout_drive is not None:
        yield f"data.holdout_drive is for the drives of CamVid, and the data are {data.name}; leave it out"
