"""`oneway bench params`: numbers of parameters, beside those of the paper."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from oneway import models
from oneway.config import Model
from oneway.tools.bench.cases import EFFICIENT
from oneway.tools.bench.findings import Findings, Options, Say, table_of
from oneway.tools.bench.paper import INFERENCE, PARAMETERS

NETWORKS: dict[str, tuple[Model, int]] = {
    "swiftnet-rn18": (Model(name="swiftnet", backbone="resnet18"), 19),
    "swiftnet-rn34": (Model(name="swiftnet", backbone="resnet34"), 19),
    "deeplabv3plus-rn50": (Model(name="deeplabv3plus", backbone="resnet50"), 19),
    "deeplabv2-rn101": (Model(name="deeplabv2", backbone="resnet101"), 19),
    "wrn-28-2": (Model(name="wrn-28-2"), 10),
    **{f"swiftnet-{name}": (model, 19) for name, model in EFFICIENT.items()},
}
"""The networks of the paper and two with efficient encoders, each with its number of classes."""

SEGMENTING: dict[str, Model] = {name: model for name, (model, _) in NETWORKS.items() if name in INFERENCE}
"""Those whose speed of inference is measured."""

WITHOUT_NORMS = ("deeplabv2-rn101",)
"""Whose published number is reached only without the scale and shift of batch norm."""


def bench_params(options: Options, say: Say) -> Findings:
    """Count the parameters of every network."""
    results = {}
    for name, (config, classes) in options.choose(NETWORKS).items():
        total, in_norms = count_parameters(config, classes)
        results[name] = {
            "classes": classes,
            "parameters": total,
            "parameters_of_batch_norm": in_norms,
            "millions_compared": (total - in_norms if name in WITHOUT_NORMS else total) / 1e6,
            "paper_millions": PARAMETERS.get(name),
        }
        say(f"{name:20} {total:>12,} parameters")
    columns = {
        "network": "{network}",
        "classes": "{classes}",
        "parameters": "{parameters:,}",
        "of batch norm": "{parameters_of_batch_norm:,}",
        "millions": "{millions_compared:,.2f}",
        "paper, millions": "{paper_millions:,.2f}",
    }
    rows = [{"network": name, **found} for name, found in results.items()]
    notes = ["In millions, DeepLab v2 is counted without the parameters of batch norm: that is the paper's number."]
    return Findings([table_of("Numbers of parameters", rows, columns)], results, notes)


def count_parameters(config: Model, classes: int) -> tuple[int, int]:
    """All parameters of a network, and those of them that are batch norm's."""
    network = models.build(config, classes, seed=0)
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    return _size(network), sum(map(_size, norms))


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
