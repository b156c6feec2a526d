"""Memory: how much a run has used, how much it needs at least, and the error where that is not available."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import nn

from oneway.common import address_space
from oneway.common.errors import UserError
from oneway.config import Config
from oneway.engine.start import batch_sizes

CONTAINER = Path("/sys/fs/cgroup")
"""Where a container finds its own limits (version 2 of Linux control groups)."""


@contextmanager
def explain_out_of_memory(config: Config) -> Iterator[None]:
    """Turn an out-of-memory error within the block into a UserError that names the settings to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not address_space.is_out_of_memory(error):
            raise
        raise UserError(f"Out of memory. {_way_out(config)}") from error


def require(student: nn.Module, checkpoint_bytes: int, config: Config, device: torch.device) -> None:
    """Refuse a run that cannot fit, before it starts: counts what training needs beside activations.

    On the device these are gradients, the optimiser's state, a teacher and the batch; in the computer's memory, a
    checkpoint while it is written. What the activations need shows in the first step.
    """
    weights = sum(tensor.nbytes for tensor in student.state_dict().values())
    height, width = config.jitter.crop or (1, 1)
    inputs = 4 * 3 * height * width * sum(batch_sizes(config))
    needs = [(device, checkpoint_bytes + inputs), (torch.device("cpu"), 2 * checkpoint_bytes)]
    if device.type == "cpu":
        needs = [(device, sum(bytes_needed for _, bytes_needed in needs))]
    for place, bytes_needed in needs:
        free = available(place)
        if free is not None and bytes_needed > free:
            raise UserError(
                f"Training needs at least {bytes_needed / 2**20:.0f} MiB more memory on {place} for a model of "
                f"{weights / 2**20:.0f} MiB, and {free / 2**20:.0f} MiB are free. {_way_out(config)}"
            )


def available(device: torch.device) -> int | None:
    """Bytes that are free or can be freed; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    sizes = (_left_to_machine(), _left_to_container(), address_space.left())
    return min((size for size in sizes if size is not None), default=None)


def peak_mib(device: torch.device) -> float:
    """Peak memory in MiB: allocated on the device; on a CPU, of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _left_to_machine() -> int | None:
    with suppress(OSError, ValueError, KeyError):
        return 1024 * _numbers(Path("/proc/meminfo"))["MemAvailable:"]
    return None


def _left_to_container() -> int | None:
    """The container's limit less its use, not counting cached files, which the system would drop."""
    with suppress(OSError, ValueError, KeyError):
        limit, used = (int((CONTAINER / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        return max(limit - used + _numbers(CONTAINER / "memory.stat")["inactive_file"], 0)
    return None


def _numbers(path: Path) -> dict[str, int]:
    """Numbers of a file with lines such as `name 123`, by name."""
    lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {name: int(number) for name, number, *_ in lines}


def _way_out(config: Config) -> str:
    crop, (labelled, unlabelled) = config.jitter.crop, batch_sizes(config)
    size = f" in crops of {crop[0]}×{crop[1]}" if crop else ""
    images, flags = f"{labelled} labelled", ["--train.batch-labelled"]
    if unlabelled:
        images, flags = f"{images} and {unlabelled} unlabelled", [*flags, "--train.batch-unlabelled"]
    return f"A step has {images} images{size}: lower {' or '.join([*flags, '--jitter.crop'] if crop else flags)}."
