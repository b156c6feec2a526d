"""Initial weights (`model.weights`) from ImageNet training, a state dict in a file, or an earlier run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from oneway.common.errors import UserError
from oneway.common.importing import import_timm
from oneway.common.links import refuse_link
from oneway.common.run_files import MODEL
from oneway.common.words import listed
from oneway.engine import memory
from oneway.models.encoder import Encoder
from oneway.models.named import BACKBONES
from oneway.models.seed import seed_cpu
from oneway.runs import state_dicts
from oneway.runs.checkpoint import tensors as safe
from oneway.runs.imagenet import fetch
from oneway.runs.model_file import refuse_damage, refuse_unusable, validate

if TYPE_CHECKING:
    from oneway.config import Model


class Loaded(NamedTuple):
    """The parameters that `model.weights` has filled."""

    parameters: list[nn.Parameter]
    """The filled parameters, which learn at `optimiser.learning_rate_pretrained`."""

    remarks: list[str]
    """Messages that say what fitted and what did not."""


@dataclass(frozen=True)
class Weights:
    """Named tensors; with `classes`, those of a whole network that `oneway` has trained."""

    name: str
    """The user's value of `model.weights`, and what it resolves to."""

    tensors: Mapping[str, Tensor]
    classes: tuple[str, ...] | None = None
    flags: str = ""
    """The command-line flags that make that network."""


def locate(config: Model) -> Weights | None:
    """Read the weights that `model.weights` names; None for random ones. Called before data are read.

    Raises:
        UserError: It cannot be fetched or read.
    """
    if config.weights != "imagenet":
        return None if config.weights is None else read(config.weights)
    published = fetch(config.backbone or BACKBONES[config.name])
    return replace(read(str(published.file)), name=f"imagenet ({published.name})", classes=None)


@dataclass(frozen=True)
class _Match:
    """Which tensors of a file belong to a network, or to its encoder alone."""

    part: str
    target: nn.Module
    own: Mapping[str, Tensor]
    """The tensors of the target."""
    there: Mapping[str, Tensor]
    """Those of the file, by the target's names."""
    origins: Mapping[str, str]
    """Their names in the file."""
    unused: list[str]
    """Names in the file that belong to nothing here."""
    classes: int | None
    """How many the file's tensors are for: those of another number of classes start anew."""

    @property
    def differing(self) -> list[str]:
        """Those that have another shape there than here."""
        return [name for name, tensor in self.there.items() if tensor.shape != self.own[name].shape]

    @property
    def anew(self) -> list[str]:
        """Those that do since there are other classes."""
        return [name for name in self.differing if self.there[name].shape == (self.classes, *self.own[name].shape[1:])]


def load_weights(network: nn.Module, source: Weights) -> Loaded:
    """Load the weights into the network, in place; a tensor of another shape is refused."""
    match, said = _match(network, source), f"model.weights {source.name}"
    if conflicts := _conflicts(match, source):
        raise UserError(f"{said}: of another network: {conflicts}")
    differing = match.differing
    numbers = {name: there.to(match.own[name].dtype) for name, there in match.there.items() if name not in differing}
    refuse_unusable({match.origins[name]: tensor for name, tensor in numbers.items()}, said)
    match.target.load_state_dict(numbers, strict=False)
    parameters = [parameter for name, parameter in match.target.named_parameters() if name in numbers]
    return Loaded(parameters, [f"{said}: {' '.join(_remarks(match, source, len(numbers)))}"])


def _match(network: nn.Module, source: Weights) -> _Match:
    """What fits by name: a state dict from elsewhere, a classifier's, to the encoder; ours knows the decoder too."""
    encoder: Any = getattr(network, "encoder", None)
    part, target, tensors = "network", network, source.tensors
    whole = source.classes is not None or not isinstance(encoder, Encoder)
    if not whole:
        part, target = "encoder", getattr(encoder.net, "model", encoder.net)  # timm wraps what it cannot take apart
        if len(_origins(target.state_dict(), tensors)) < len(target.state_dict()):
            tensors = _renamed(encoder.backbone, tensors)
    own = target.state_dict()
    origins = _origins(own, tensors)
    there = {name: tensors[origin] for name, origin in origins.items()}
    unused = tensors.keys() - origins.values()
    return _Match(
        part=part,
        target=target,
        own=own,
        there=there if whole else encoder.fitted(there),
        origins=origins,
        unused=[name for name in tensors if name in unused],
        classes=None if source.classes is None else len(source.classes),
    )


def _conflicts(match: _Match, source: Weights) -> str:
    """Why weights are those of another network; nothing where they fit."""
    own, there, differing, anew = match.own, match.there, match.differing, match.anew
    if conflicts := [name for name in differing if name not in anew]:
        shapes = [f"{name} has shape {_shape(there[name])} there and {_shape(own[name])} here" for name in conflicts]
        way_out = f" It was made by {source.flags}." if source.flags else ""
        if match.part == "encoder":
            way_out = " Such weights fit a network of full width: leave out --model.width, or the weights."
        return f"{listed(shapes)}.{way_out}"
    filling = [name for name in there if name not in differing]
    if integers := [n for n in filling if own[n].is_floating_point() and not there[n].is_floating_point()]:
        return (
            f"{listed(integers)} is of an integer type in the file, and of floating point in the network. Give weights "
            "of the same network."
        )
    if not any(name in filling for name, _ in match.target.named_parameters()):
        return f"it has {listed(source.tensors)}; wanted are {listed(own)}."
    return ""


def _remarks(match: _Match, source: Weights, filled: int) -> Iterator[str]:
    """What fitted and what did not."""
    own, anew = match.own, match.anew
    not_random = "num_batches_tracked", "mean", "deviation"  # the last two normalise colours, in networks of ours
    missing = [name for name in own if name not in match.there and name.rpartition(".")[2] not in not_random]
    yield f"fills {filled} of the {match.part}'s {len(own)} tensors."
    if missing:
        yield f"It lacks {listed(missing)}: random."
    if source.classes is not None and anew:
        yield f"It has {len(source.classes)} classes instead of {len(own[anew[0]])}: {listed(anew)} start anew."
    elif source.classes is not None and not missing:
        yield f"Its classes are, in this order, {', '.join(source.classes)}."
    if match.unused:
        yield f"Of no use here: {listed(match.unused)}."


def read(weights: str) -> Weights:
    """The tensors of a .safetensors or .pth file, or of a run folder's model; nothing but tensors is ever read."""
    path = Path(weights)
    if path.is_dir():
        path = refuse_link(path / MODEL)
    if not path.is_file():
        raise UserError(f"model.weights {path}: no such file. Give 'imagenet', a .safetensors or .pth file, or a run.")
    try:
        size, free = path.stat().st_size, memory.available(torch.device("cpu"))
        if free is not None and size > free:
            raise UserError(f"{path}: has {size / 2**20:.0f} MiB, and {free / 2**20:.0f} MiB of memory are free.")
        return _safetensors(path) if path.suffix == ".safetensors" else Weights(str(path), state_dicts.read(path))
    except UserError as error:
        raise UserError(f"model.weights {error}") from error.__cause__


def _safetensors(path: Path) -> Weights:
    with safe.open_file(path) as file:
        about = safe.read_about(file, path) if safe.KEY in (file.metadata() or {}) else None
        if about is not None and "classes" not in about:
            raise UserError(
                f"{path}: a checkpoint, from which --resume continues its run. Give the run folder instead: "
                "the model is there once the run has ended."
            )
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    for name, tensor in tensors.items():
        state_dicts.refuse_odd(name, tensor, path)
    if about is None:
        return Weights(str(path), tensors)
    trained = validate(about, path)
    refuse_damage(about, tensors, path)
    values = {key: getattr(trained.model, key) for key in ("name", "backbone", "width")}
    flags = " ".join(f"--model.{key} {value}" for key, value in values.items() if value is not None)
    return Weights(str(path), tensors, trained.classes, flags)


def _renamed(backbone: str, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors renamed as timm names them, if they are of the same network; else unchanged.

    timm's loader knows the names of many authors. It does not know some of torchvision's: then tensors are matched by
    order, since all have the same shapes in the same order.
    """
    timm = import_timm()

    with seed_cpu(0):
        own = timm.create_model(backbone).state_dict()
        if [tensor.shape for tensor in own.values()] == [tensor.shape for tensor in tensors.values()]:
            return dict(zip(own, tensors.values(), strict=True))
        try:  # refuses what is missing, and what is left over
            given = {"state_dict": dict(tensors)}
            return timm.create_model(backbone, pretrained=True, pretrained_cfg_overlay=given).state_dict()
        except Exception:  # in as many ways as there are networks
            return tensors


def _origins(own: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """Map the network's names to those in the file, which may all have a prefix such as `module.`.

    Where timm takes a network apart for its features, it writes `blocks_0` for `blocks.0`.
    """
    mine, theirs = {_flat(name): name for name in own}, {_flat(name): name for name in there}
    longest = max(mine, key=len)
    prefixes = sorted(name.removesuffix(longest) for name in theirs if name.endswith(longest))
    prefix = max(prefixes, key=lambda prefix: sum(prefix + name in theirs for name in mine), default="")
    return {mine[name]: theirs[prefix + name] for name in mine if prefix + name in theirs}


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "()"
