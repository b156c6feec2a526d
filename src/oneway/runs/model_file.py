"""`model.safetensors`: one file to predict from, with weights, classes and colours, checked when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from oneway import models
from oneway.common.errors import UserError
from oneway.config import Model, confirm_factory
from oneway.data.dataset import class_name
from oneway.runs.atomic import write_atomically
from oneway.runs.checkpoint import tensors

MODEL_FORMAT = 2


@dataclass(frozen=True)
class TrainedModel:
    """A network with what is needed to use it."""

    network: nn.Module
    classes: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]


Byte = Annotated[int, Field(ge=0, le=255)]
ClassName = Annotated[str, AfterValidator(class_name)]


class About(BaseModel):
    """What the file says beside its tensors."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    format: int
    model: Model
    classes: tuple[ClassName, ...] = Field(min_length=1, max_length=255)
    colours: tuple[tuple[Byte, Byte, Byte], ...] = Field(max_length=255)


def save_model(path: Path, trained: TrainedModel, config: Model) -> None:
    """One file to predict from: weights (the normalisation among them), classes and colours."""
    about = {
        "format": MODEL_FORMAT,
        "model": config.model_dump(mode="json"),
        "classes": trained.classes,
        "colours": trained.colours,
    }
    content = {name: tensor.cpu().contiguous() for name, tensor in trained.network.state_dict().items()}
    write_atomically(path, tensors.serialise(content, {**about, "sha256": digest(about, content)}))


def load_model(path: Path, device: torch.device, factory: str | None = None) -> TrainedModel:
    """The network of a `model.safetensors`, of any origin, in evaluation mode.

    Args:
        path: The file.
        device: Where the network goes.
        factory: The `model.factory` that the user agrees to run; a file that names another is refused.

    Raises:
        UserError: There is none, it is damaged, or a newer version has written it.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; has the run ended? Continue it with --resume.")
    with tensors.open_file(path) as file:
        words = tensors.read_about(file, path)
        about = _validate(words, path)
        confirm_factory(about.model.factory, factory, path)
        if about.model.factory is None:
            with suppress(_CannotBuild), torch.device("meta"):
                # A file of a few bytes may name a network of gigabytes: its shapes are compared before it is made.
                tensors.check(file, path, tensors.expected_of(_build(about, path).state_dict()))
        network = _build(about, path)
        content = tensors.read(file, path, tensors.expected_of(network.state_dict()))
        seal = words.pop("sha256", None)
        if digest(words, content) != seal:
            raise UserError(f"{path}: damaged; it does not match its SHA-256. Restore it from a copy.")
        network.load_state_dict(content)
    return TrainedModel(network.to(device).eval(), about.classes, about.colours)


def _validate(words: dict[str, Any], path: Path) -> About:
    found = words.get("format")
    if isinstance(found, int) and found > MODEL_FORMAT:
        raise UserError(
            f"{path}: a model of format {found}, and this version of oneway knows formats up to {MODEL_FORMAT}. "
            "Use the version that wrote it, or a newer one."
        )
    try:
        about = About.model_validate_json(json.dumps(words), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: damaged; {place}: {first['msg']} (got {first['input']!r:.100}).") from None
    if len(about.colours) not in (0, len(about.classes)):
        raise UserError(f"{path}: damaged; {len(about.colours)} colours for {len(about.classes)} classes.")
    return about


class _CannotBuild(UserError):
    pass


def _build(about: About, path: Path) -> nn.Module:
    try:
        # The weights come from this file, whatever the run started from.
        return models.build(about.model.model_copy(update={"weights": None}), len(about.classes), seed=0)
    except Exception as error:  # a tiny width fails in the first layer that it leaves without channels
        raise _CannotBuild(f"{path}: describes a network that cannot be built ({error}).") from error


def digest(about: Mapping[str, Any], content: Mapping[str, Tensor]) -> str:
    """SHA-256 of what the file says and of its tensors, which are on the CPU and contiguous."""
    parts = {name: content[name].reshape(-1).view(torch.uint8).numpy().data for name in sorted(content)}
    digests = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    return hashlib.sha256(json.dumps([about, digests]).encode()).hexdigest()
