"""What is measured: networks with their crops and batches, on random images, by this engine and by plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import numpy as np
import torch
from torch import nn

from oneway import models
from oneway.config import Config, Data, Jitter, Model, Train
from oneway.config.recipes import recipe
from oneway.data.dataset import Samples
from oneway.draws import Draws, Plan, draw
from oneway.engine import start
from oneway.engine.capture import choose_step
from oneway.engine.state import TrainingState
from oneway.engine.step import Measured
from oneway.engine.store import Store
from oneway.methods import METHODS, VariantName

Engine = Literal["oneway", "plain"]
Size = tuple[int, int]
Advance = Callable[[Draws], Measured]

SETUPS: dict[str, tuple[str, VariantName]] = {
    "supervised": ("supervised", "1w-ct"),
    "simple-phtps": ("simple-phtps", "1w-ct"),
    "mt-phtps": ("mt-phtps", "1w-ct"),
    "2w-c1": ("simple-phtps", "2w-c1"),
    "mt-cutmix-l2": ("mt-cutmix-l2", "1w-ct"),
    "cac": ("cac", "1w-ct"),
    "one pass": ("mt-colour-cutmix-drop", "1w-ct"),
}
"""Methods of the paper's table, the two-way variant that its figure of memory compares with, and the default here."""

USUAL = ("supervised", "simple-phtps", "mt-phtps", "2w-c1")
DENSE = (*USUAL, "one pass")
"""Where a network has features to drop."""


@dataclass(frozen=True)
class Case:
    """A network with its crop and batch, and the random images that the crops are taken from."""

    name: str
    config: Config
    classes: int
    images: int
    size: Size
    """Height and width of the images."""

    setups: tuple[str, ...] = USUAL

    @property
    def batch(self) -> str:
        """The batch size, as the paper writes it."""
        return f"({self.config.train.batch_labelled}, {self.config.train.batch_unlabelled})"


def segmentation(
    name: str, model: Model, crop: int, size: Size, images: int = 32, batch: int = 8, setups: tuple[str, ...] = DENSE
) -> Case:
    """Square crops at random scales, as in the recipes of Cityscapes."""
    config = Config(
        data=Data(name="cityscapes"),
        jitter=Jitter(crop=(crop, crop), scale=(0.5, 2)),
        model=model,
        train=Train(batch_labelled=batch, batch_unlabelled=batch),
    )
    return Case(name, config, 19, images, size, setups)


def classification(batch: tuple[int, int], images: int) -> Case:
    """The `cifar10` recipe, but with a teacher like that of the other cases."""
    changes = {"batch_labelled": batch[0], "batch_unlabelled": batch[1], "teacher_norm": "population"}
    return Case("wrn-32", recipe("cifar10").changed(train=changes), classes=10, images=images, size=(32, 32))


def quickstart() -> Case:
    """The scenes of the quickstart, in the precision that is fastest on this CPU."""
    config = recipe("streets").changed(train={"precision": start.fast_precision(torch.device("cpu"))})
    return Case("streets", config, classes=9, images=32, size=config.data.size, setups=("supervised", "simple-phtps"))


EFFICIENT = {"lite0": Model(backbone="tf_efficientnet_lite0"), "mnv4m": Model(backbone="mobilenetv4_conv_medium")}
"""Encoders of depthwise-separable convolutions, which the paper has none of."""


def training_cases(small: bool) -> dict[str, Case]:
    """The cases of the paper with efficient encoders beside them, or small cases that a CPU can do."""
    rn18, rn34 = Model(backbone="resnet18"), Model(backbone="resnet34")
    full = [
        segmentation("rn18-768", rn18, 768, (1024, 2048)),
        segmentation("rn34-768", rn34, 768, (1024, 2048)),
        segmentation("rn18-448", rn18, 448, (512, 1024)),
        segmentation("rn18-352", rn18, 352, (360, 480)),
        *(segmentation(f"{name}-768", model, 768, (1024, 2048)) for name, model in EFFICIENT.items()),
        *(segmentation(f"{name}-352", model, 352, (360, 480)) for name, model in EFFICIENT.items()),
        classification((128, 640), images=50_000),
    ]
    demonstration = [
        segmentation("rn18-64", Model(backbone="resnet18", width=0.5), 64, (96, 192), images=8, batch=2),
        *(segmentation(f"{name}-64", model, 64, (96, 192), images=8, batch=2) for name, model in EFFICIENT.items()),
        classification((2, 4), images=64),
        quickstart(),
    ]
    return {case.name: case for case in (demonstration if small else full)}


def compared_cases(small: bool) -> dict[str, Case]:
    """The cases of the other rows of the paper's table of time and memory: networks and methods it compares with."""
    half, full = (512, 1024), (1024, 2048)
    if small:
        v2, v3plus = (Model(name=name, width=0.125) for name in ("deeplabv2", "deeplabv3plus"))
        cases = [
            segmentation("dlv2-64", v2, 64, (96, 192), 8, 2, setups=("supervised", "mt-cutmix-l2")),
            segmentation("dlv3p-64", v3plus, 64, (96, 192), 8, 2, setups=("supervised", "cac")),
        ]
    else:
        v2, v3plus = Model(name="deeplabv2"), Model(name="deeplabv3plus")
        cases = [
            segmentation("rn18-448-b4", Model(), 448, half, batch=4, setups=("supervised",)),
            segmentation("dlv2-321-b10", v2, 321, half, batch=10, setups=("mt-cutmix-l2",)),
            segmentation("dlv2-321", v2, 321, half, batch=4, setups=("mt-cutmix-l2",)),
            segmentation("dlv2-448", v2, 448, half, batch=4, setups=("supervised", "mt-phtps")),
            segmentation("dlv3p-720", v3plus, 720, full, setups=("supervised", "simple-phtps", "cac")),
        ]
    return {case.name: case for case in cases}


def random_samples(case: Case) -> Samples:
    """Images and labels of noise: what they show does not matter to any measurement."""
    random = np.random.default_rng(0)
    names = tuple(map(str, range(case.images)))
    images = random.integers(256, size=(case.images, *case.size, 3), dtype=np.uint8)
    dense = case.config.data.name != "cifar10"
    labels = random.integers(case.classes, size=images.shape[: 3 if dense else 1], dtype=np.uint8)
    return Samples.stacked(names, images, labels)


def random_plan(case: Case, setup: str = "simple-phtps", network: nn.Module | None = None) -> Plan:
    """The plan of a run in which every image has both roles, as in the paper; from the network, its channels."""
    items = tuple(range(case.images))
    return start.plan_of(configured(case, setup, "oneway"), items, items, network=network)


def random_draws(case: Case, setup: str = "simple-phtps", network: nn.Module | None = None) -> Iterator[Draws]:
    """The draws of eight iterations over and over, made beforehand."""
    plan = random_plan(case, setup, network)
    return cycle([draw(plan, iteration) for iteration in range(8)])


def configured(case: Case, setup: str, engine: Engine) -> Config:
    """A case trained by a method; plain PyTorch computes in single precision (TF32) and with functions of its own."""
    method, variant = SETUPS[setup]
    changes = dict(METHODS[method].train) | ({"engine": "plain", "precision": "float32"} if engine == "plain" else {})
    return case.config.changed(method=method, variant=variant, train=changes)


def engines(case: Case, device: torch.device) -> tuple[Engine, ...]:
    """The engines to compare; in single precision on a CPU, the two are one and the same."""
    differ = device.type == "cuda" or case.config.train.precision == "bfloat16"
    return ("oneway", "plain") if differ else ("oneway",)


def fresh_state(config: Config, classes: int, device: torch.device) -> TrainingState:
    """The training state that a run would start with."""
    balanced = torch.ones(classes) if config.train.balance == "frequency" else None
    return start.training_state([models.build(config.model, classes, seed=0)], (), config, device, None, balanced)


def make_iteration(state: TrainingState, config: Config, store: Store) -> Advance:
    """A function that does one iteration, as a run would."""

    def refuse(complaint: str) -> None:
        raise CannotCapture(complaint)

    advance = choose_step(state, store, config, refuse)
    return lambda draws: advance(draws, config.train.alpha)


class CannotCapture(Exception):
    """The step cannot be captured; falling back, it would be measured as the fast way that it is not."""
