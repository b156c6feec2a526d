"""Access to features inside a network: between encoder and decoder, and before the classifier.

Shapes: N images; K channels of all feature maps together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from oneway.common.errors import UserError


def has_encoder(network: nn.Module) -> bool:
    """Whether the network has an encoder that says how many channels its feature maps have."""
    return isinstance(getattr(getattr(network, "encoder", None), "channels", None), tuple)


def feature_channels(network: nn.Module) -> tuple[int, ...]:
    """The number of channels of each feature map that the decoder receives."""
    channels: tuple[int, ...] = _encoder_of(network).channels
    return channels


@contextmanager
def scaled_features(network: nn.Module, factors: Tensor) -> Iterator[None]:
    """Within the block, each channel of the encoder's feature maps is multiplied by one of N×K factors."""
    encoder, channels = _encoder_of(network), feature_channels(network)
    parts = factors[:, :, None, None].split(channels, dim=1)

    def scale(module: nn.Module, inputs: Any, maps: list[Tensor]) -> list[Tensor]:
        if (found := tuple(each.shape[1] for each in maps)) != channels:
            raise UserError(f"The encoder's `channels` are {channels}, and its feature maps have {found}: mend either.")
        return [each * factor.to(each.dtype) for each, factor in zip(maps, parts, strict=True)]

    with encoder.register_forward_hook(scale):
        yield


@contextmanager
def encoded_features(network: nn.Module) -> Iterator[list[list[Tensor]]]:
    """Within the block, each forward pass appends the encoder's feature maps, N×K×h×w each, the coarsest last."""
    found: list[list[Tensor]] = []
    with _encoder_of(network).register_forward_hook(lambda module, inputs, maps: found.append(maps)):
        yield found


@contextmanager
def classified_features(network: nn.Module) -> Iterator[list[Tensor]]:
    """Within the block, each forward pass appends the classifier's input: N×K×h×w."""
    found: list[Tensor] = []
    with classifier_of(network).register_forward_pre_hook(lambda module, inputs: found.append(inputs[0])):
        yield found


def classifier_of(network: nn.Module) -> nn.Conv2d:
    """The classifier: the last convolution of `head`."""
    head = getattr(network, "head", None)
    convolutions = [module for module in head.modules() if isinstance(module, nn.Conv2d)] if head is not None else []
    if not convolutions:
        raise UserError(
            f"The method compares the features before the classifier, and {type(network).__name__} has no `head` "
            "that ends with a convolution. Use swiftnet or deeplabv3plus, or another --method."
        )
    return convolutions[-1]


def _encoder_of(network: nn.Module) -> Any:
    if not has_encoder(network):
        raise UserError(
            f"This needs the features between encoder and decoder, and {type(network).__name__} has no `encoder` with "
            "a tuple `channels`, those of each feature map that it returns. Give it one, leave out --model.factory, or "
            "use another --method, such as mt-colour-cutmix (with `suggest`, another --by)."
        )
    return network.encoder
