"""The graph that is exported: bytes in, classes or logits at full resolution out, for any batch and any size.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any, Literal

import torch
import torch.fx.experimental._config as symbolic
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.overrides import TorchFunctionMode

from oneway.common.errors import UserError
from oneway.common.words import first_line
from oneway.models.reduced import factor_of
from oneway.models.winograd import without_products
from oneway.ops.losses import pixels_of, upsample

Output = Literal["labels", "logits"]
INPUT = "images"
EXAMPLE = (2, 192, 320, 3)
"""No two of its sides agree: what is equal there would be taken to be equal always."""

SMALLEST = (2, 64)
"""Sides that images may have: some networks want two cells at the coarsest stride."""


class Deployed(nn.Module):
    """A network with what surrounds it in use: N×H×W×3 bytes to N×H×W classes (or N), or to their logits."""

    def __init__(self, network: nn.Module, output: Output) -> None:
        super().__init__()
        self.network = network
        self.output = output

    def forward(self, images: Tensor) -> Tensor:
        # With channels last, the tracer would tell one image, or one column of cells, from several.
        x = images.permute(0, 3, 1, 2).contiguous().float() / 255
        logits = upsample(self.network(x), pixels_of(x))
        # Many times as fast as argmax, with channels first.
        return logits if self.output == "logits" else logits.max(dim=1).indices.to(torch.uint8)


def trace(network: nn.Module, output: Output, pool_by_products: bool) -> ExportedProgram:
    """The graph of a network on the CPU in evaluation mode, with free batch, height and width.

    `pool_by_products` writes adaptive pooling as matrix products, for formats that have no such operation.
    """
    factor = factor_of(network)
    batch, height, width, colours = EXAMPLE
    example = torch.zeros(batch, height * factor, width * factor, colours, dtype=torch.uint8)
    deployed = Deployed(without_products(network), output).eval()
    failure: Exception | None = None
    # The smallest size is for the tracer. ONNX graphs do not check it, so there the larger one costs nothing.
    for side in SMALLEST[1:] if pool_by_products else SMALLEST:
        smallest = side * factor
        free = {0: Dim("batch", min=1), 1: Dim("height", min=smallest), 2: Dim("width", min=smallest)}
        try:
            with (
                warnings.catch_warnings(action="ignore"),
                # Otherwise the graph would refuse one image, or a grid with one column, unless the example had one.
                symbolic.patch(backed_size_oblivious=True),  # type: ignore[attr-defined]
                PoolingByProducts() if pool_by_products else nullcontext(),
            ):
                return torch.export.export(deployed, (example,), dynamic_shapes=(free,))
        except Exception as error:  # tracing fails in as many ways as code can be written
            failure = error
    assert failure is not None
    raise UserError(f"This network cannot be exported ({explain_error(failure)}).") from failure


def explain_error(error: BaseException) -> str:
    """The first line about the error that caused all others."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return f"{type(error).__name__}: {first_line(error)[:300]}"


class PoolingByProducts(TorchFunctionMode):
    """Within its block, adaptive average pooling is a product with one matrix from each side.

    A grid whose shape follows the image's has no fixed windows to slide, and ONNX no other pooling.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is F.adaptive_avg_pool2d:
            return pool_by_products(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def pool_by_products(input: Tensor, output_size: int | tuple[int | None, int | None]) -> Tensor:
    """The result of `F.adaptive_avg_pool2d`, by one matrix product for each axis."""
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
    rows, columns = (
        averaging_matrix(length, length if cells is None else cells, input)
        for length, cells in zip(input.shape[-2:], sizes, strict=True)
    )
    return rows @ input @ columns.mT


def averaging_matrix(length: int, cells: int, like: Tensor) -> Tensor:
    """cells×length weights: cell i takes the mean from ⌊i·length/cells⌋ up to ⌈(i + 1)·length/cells⌉."""
    cell = torch.arange(cells, device=like.device)[:, None]
    place = torch.arange(length, device=like.device)
    first, behind = cell * length // cells, ((cell + 1) * length + cells - 1) // cells
    inside = (place >= first) & (place < behind)
    return inside.to(like.dtype) / (behind - first).to(like.dtype)
