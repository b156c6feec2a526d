"""`model.safetensors`: weights, classes and colours in one file, all that prediction needs; checked when it is read."""

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
from oneway.common.run_files import CONFIG
from oneway.config import Model, confirm_factory
from oneway.data.dataset import class_name
from oneway.data.image_style import COLOURS, MOST_BITS, ImageStyle
from oneway.data.mask_style import MaskStyle
from oneway.runs.atomic import write_atomically
from oneway.runs.checkpoint import tensors
from oneway.runs.folder import not_ended

MODEL_FORMAT = 2
"""The only one: every model file has a checksum."""
SEAL = "sha256"
"""The metadata key of a file's checksum."""


@dataclass(frozen=True)
class TrainedModel:
    """A network with the metadata that prediction needs."""

    network: nn.Module
    classes: tuple[str, ...]
    colours: tuple[tuple[int, int, int], ...]
    masks: MaskStyle | None = None
    """The format of the masks of its training set; None if there were none, or an earlier version trained it."""

    image_style: ImageStyle = COLOURS
    """The bands and bits of the images that it was trained on."""

    reduction: int = 1
    """The factor by which images must be reduced, each way, as in training."""


Byte = Annotated[int, Field(ge=0, le=255)]
Band = Annotated[int, Field(ge=1, le=64)]
ClassName = Annotated[str, AfterValidator(class_name)]


class About(BaseModel):
    """The metadata of the file."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    format: int
    model: Model
    classes: tuple[ClassName, ...] = Field(min_length=1, max_length=255)
    colours: tuple[tuple[Byte, Byte, Byte], ...] = Field(max_length=255)
    masks: MaskStyle | None = None
    bands: tuple[Band, Band, Band] | None = None
    bits: int = Field(default=MOST_BITS, ge=9, le=MOST_BITS)
    reduction: int = Field(default=1, ge=1, le=32)


def save_model(path: Path, trained: TrainedModel, config: Model) -> None:
    """Write a model file: weights (with the normalisation), classes and colours."""
    about: dict[str, Any] = {
        "format": MODEL_FORMAT,
        "model": config.model_dump(mode="json"),
        "classes": trained.classes,
        "colours": trained.colours,
    }
    if trained.masks is not None:
        about["masks"] = trained.masks.model_dump()
    if trained.image_style.bands is not None:
        about["bands"] = trained.image_style.bands
    if trained.image_style.bits != MOST_BITS:
        about["bits"] = trained.image_style.bits
    if trained.reduction > 1:
        about["reduction"] = trained.reduction
    content = {name: tensor.cpu().contiguous() for name, tensor in trained.network.state_dict().items()}
    write_atomically(path, tensors.pack(content, {**about, SEAL: digest(about, content)}).data)


def load_model(path: Path, device: torch.device, factory: str | None = None) -> TrainedModel:
    """Load a `model.safetensors` of any origin; the network is in evaluation mode.

    A file is refused if it names a `model.factory` that the user has not agreed to run.

    Raises:
        UserError: There is none, it is damaged, a newer version has written it, or its weights cannot be used: see
            `refuse_damage`.
    """
    if not path.is_file():
        if (path.parent / CONFIG).is_file():
            raise not_ended(path.parent)
        raise UserError(f"{path}: no such file; has the run ended?")
    with tensors.open_file(path) as file:
        words = tensors.read_about(file, path)
        about = validate(words, path)
        confirm_factory(about.model.factory, factory, path)
        if about.model.factory is None:
            with suppress(_CannotBuild), torch.device("meta"):
                # A file of a few bytes may name a network of gigabytes: its shapes are compared before it is made.
                tensors.check(file, path, tensors.expected_of(_build(about, path).state_dict()))
        network = _build(about, path)
        content = tensors.read(file, path, tensors.expected_of(network.state_dict()))
        refuse_damage(words, content, path)
        if isinstance(network, models.ImageModel) and not content["deviation"].all():
            raise UserError(f"{path}: its deviation is 0 somewhere, by which no image can be divided. Train it again.")
        network.load_state_dict(content)
    ready = network.to(device).eval()
    style = ImageStyle(about.bands, about.bits)
    return TrainedModel(ready, about.classes, about.colours, about.masks, style, about.reduction)


def refuse_damage(words: Mapping[str, Any], content: Mapping[str, Tensor], path: Path) -> None:
    """Refuse a file that does not match its SHA-256, or whose tensors cannot be used."""
    if digest({key: value for key, value in words.items() if key != SEAL}, content) != words.get(SEAL):
        raise UserError(f"{path}: damaged; it does not match its SHA-256. Restore it from a copy.")
    refuse_unusable(content, str(path))


def refuse_unusable(content: Mapping[str, Tensor], source: str) -> None:
    """Refuse non-finite weights and negative variances: every pixel would silently get the same class."""
    for name, tensor in content.items():
        if not tensors.is_finite(tensor):
            what = "has values that are not finite"
        elif name.endswith("running_var") and (tensor < 0).any():
            what = "has negative variances"
        else:
            continue
        raise UserError(f"{source}: its {name[:200]} {what}. Use an earlier copy, or train it again.")


def validate(words: Mapping[str, Any], path: Path) -> About:
    """Parse a file's metadata strictly; unknown formats are refused."""
    found = words.get("format")
    if type(found) is int and found > MODEL_FORMAT:
        raise UserError(
            f"{path}: a model of format {found!r:.40}, and this version of oneway knows formats up to {MODEL_FORMAT}. "
            "Use the version that wrote it, or a newer one."
        )
    if found != MODEL_FORMAT:
        raise UserError(f"{path}: damaged; there are no models of format {found!r:.40}. Restore it from a copy.")
    try:
        about = About.model_validate_json(json.dumps(words), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: damaged; {place}: {first['msg']} (got {first['input']!r:.100}).") from None
    if len(about.colours) not in (0, len(about.classes)):
        raise UserError(f"{path}: damaged; {len(about.colours)} colours for {len(about.classes)} classes.")
    if about.masks and (len(about.masks.values) != len(about.classes) or not about.masks.fits):
        raise UserError(f"{path}: damaged; the values of its masks are not those of {len(about.classes)} classes.")
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
    """SHA-256 of the metadata and the tensors, which must be on the CPU and contiguous."""
    parts = {name: content[name].reshape(-1).view(torch.uint8).numpy().data for name in sorted(content)}
    digests = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items()}
    return hashlib.sha256(json.dumps([about, digests]).encode()).hexdigest()
