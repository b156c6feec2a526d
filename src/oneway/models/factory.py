"""A network of the user's own: any function that returns a module, named `package.module:function`.

Shapes: N images of H×W pixels, C classes, logits at h×w.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from copy import deepcopy
from operator import attrgetter

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.terms import Task
from oneway.common.words import listed
from oneway.models.seed import seed_cpu

LARGEST_PROBE = 256
"""Largest height and width of the images that a network is examined with; smaller crops are used as they are."""


def call_factory(name: str, classes: int) -> nn.Module:
    """The module that `package.module:function` returns for a number of classes. Runs the user's code."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # files in the working directory are found, after installed modules
    try:
        function: Callable[[int], object] = attrgetter(attribute)(importlib.import_module(module_name))
    except Exception as error:
        raise _failure(name, "cannot be imported", error) from error
    if not callable(function):
        raise UserError(f"model.factory {name}: cannot be called. Name a function of the number of classes.")
    try:
        network = function(classes)
    except Exception as error:
        raise _failure(name, f"fails for {classes} classes", error) from error
    if not isinstance(network, nn.Module):
        raise UserError(f"model.factory {name}: returns a {type(network).__name__}. Return a torch.nn.Module.")
    return network


def examine(network: nn.Module, name: str, classes: int, task: Task, crop: tuple[int, int]) -> list[str]:
    """Run a copy of the network forwards and backwards on random images; refuse one that cannot train.

    Returns remarks on whatever else is unusual.
    """
    height, width = (min(side, LARGEST_PROBE) for side in crop)
    probe = deepcopy(network).train()
    with seed_cpu(0):
        logits = _logits(probe, name, torch.rand(2, 3, height, width), classes, task)
        remarks = _parameters_left_out(probe, name, logits)
        return [*remarks, *_sizes_left_out(probe, name, (height + 1, width + 3))]


def _logits(network: nn.Module, name: str, x: Tensor, classes: int, task: Task) -> Tensor:
    try:
        logits: object = network(x)
    except Exception as error:
        raise _failure(name, f"its network fails on images of shape {_shape(x)}", error) from error
    axes, wanted = (4, f"2×{classes}×h×w") if task == "segmentation" else (2, f"2×{classes}")
    if not isinstance(logits, Tensor) or logits.shape[:2] != (2, classes) or logits.ndim != axes:
        given = _shape(logits) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise UserError(f"model.factory {name}: its network returns {given} for two images. Return {wanted} logits.")
    if not logits.isfinite().all():
        raise UserError(f"model.factory {name}: its network returns logits that are not finite. Look at its weights.")
    return logits


def _parameters_left_out(network: nn.Module, name: str, logits: Tensor) -> list[str]:
    if not logits.requires_grad:
        raise UserError(f"model.factory {name}: no gradient reaches a parameter of its network. Is it frozen?")
    logits.float().square().mean().backward()
    learning = {key: value.grad for key, value in network.named_parameters() if value.requires_grad}
    if not all(gradient.isfinite().all() for gradient in learning.values() if gradient is not None):
        raise UserError(f"model.factory {name}: gradients of its network are not finite. Look at its weights.")
    remarks = []
    if frozen := sum(1 for _ in network.parameters()) - len(learning):
        remarks.append(f"model.factory {name}: {frozen} parameters do not require gradients and stay as they are.")
    if unreached := [key for key, gradient in learning.items() if gradient is None]:
        remarks.append(f"model.factory {name}: no gradient reaches the parameters {listed(unreached)}.")
    return remarks


def _sizes_left_out(network: nn.Module, name: str, size: tuple[int, int]) -> list[str]:
    """A remark if the network fails on other image sizes: validation and prediction use whole images of any size."""
    try:
        with torch.no_grad():
            network.eval()(torch.rand(1, 3, *size))
    except Exception as error:  # an unknown network may raise anything
        reason = _last_line(error)
        return [
            f"model.factory {name}: its network fails on one image of {size[0]}×{size[1]} pixels ({reason}). "
            "Images are validated whole: theirs must be sizes that it takes."
        ]
    return []


def _failure(name: str, what: str, error: Exception) -> UserError:
    """The error for a failure of the user's code, with its place and message."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f", {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return UserError(f"model.factory {name}: {what} ({type(error).__name__}: {_last_line(error)}{place}).")


def _last_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[-1]


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))
