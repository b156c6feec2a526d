"""The device that a user names."""

from __future__ import annotations

import torch

from oneway.common.errors import UserError


def choose_device(name: str) -> torch.device:
    """The device of a name; `auto` takes the GPU where there is one. A GPU with a number becomes the current one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"device {name}: no such kind of device. Use auto, cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"device {name}: only cpu and cuda are supported.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name}: {torch.cuda.device_count()} CUDA devices are visible. Use auto or cpu.")
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)  # Triton launches kernels on the current device
    return device
