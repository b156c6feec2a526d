"""Kernels compiled before they are needed, side by side: one after another, dozens of them take half a minute."""

# mypy: disable-error-code="import-untyped, import-not-found, unused-ignore"

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oneway.common.cores import count_cores
from oneway.ops.backend import triton
from oneway.ops.compilers import Compilers

try:
    from triton.runtime import JITFunction
    from triton.runtime._async_compile import AsyncCompileMode
except ImportError:  # no Triton, or one that compiles when it launches, and only then
    JITFunction = AsyncCompileMode = None

THREADS = 16
"""At most; most of their time is spent in compilers that run side by side."""

FEW_CORES = 4
"""With no more of them, processes of their own would not be faster than threads."""

_LOCK = threading.Lock()
"""Held while the launching of kernels is replaced, which is so for the whole process."""


def start_compilers() -> Compilers | None:
    """Processes that compile for `compile_ahead`, where it has much to do; None where they would not help."""
    with suppress(OSError):
        return Compilers() if AsyncCompileMode is not None and count_cores() > FEW_CORES else None
    return None


def compile_ahead(function: Callable[[], object], compilers: Compilers | None = None) -> None:
    """Compiles and loads the kernels that a function launches, but launches none: what it computes is of no use.

    What they would have written is zero. Where Triton cannot, nothing is done, and each kernel is compiled when it is
    launched first. Of several threads that call this, one waits for the other; who launches kernels is not held up.
    """
    if AsyncCompileMode is None:
        return
    # Backwards in the same thread: whoever else launches kernels meanwhile does launch them.
    one_thread = torch.autograd.set_multithreading_enabled(False)
    # What fails here fails again, where it is launched.
    with (
        _LOCK,
        _Threads(compilers, min(THREADS, count_cores()), initializer=_use_device, initargs=_device()) as pool,
        _without_launching(),
        one_thread,
        AsyncCompileMode(pool, ignore_errors=True),
        _Zeros(),
    ):
        function()


def hash_compiler() -> None:
    """What Triton does once in a process before it finds a kernel: it reads itself, half a gigabyte, and remembers."""
    from triton.runtime.cache import triton_key

    triton_key()


def cache_folder() -> Path:
    """Where Triton keeps what it has compiled."""
    return Path(triton.knobs.cache.dir)


class _Threads(ThreadPoolExecutor):
    """Threads that also load what they have compiled: for some versions of Triton, a C compiler has work to do then."""

    def __init__(self, compilers: Compilers | None, threads: int, **options: Any) -> None:
        super().__init__(threads, **options)
        self.compilers = compilers

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        def compile_and_load() -> Any:
            if self.compilers is not None:
                self.compilers.compile(function)  # which finds it in Triton's cache then
            kernel = function(*arguments, **options)
            try:
                kernel._init_handles()
            except Exception:
                kernel._run = None  # or it would be launched, half loaded as it is
            return kernel

        return super().submit(compile_and_load)


class _Zeros(TorchFunctionMode):
    """New memory has zeros, since no kernel fills it: they are labels and places, and what was there might be none."""

    EMPTY = (torch.empty, torch.empty_like, Tensor.new_empty)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        return made.zero_() if function in self.EMPTY else made


def _device() -> tuple[int, ...]:
    return (torch.cuda.current_device(),) if torch.cuda.is_initialized() else ()


def _use_device(*index: int) -> None:
    for number in index:  # threads begin with the first
        torch.cuda.set_device(number)


@contextmanager
def _without_launching() -> Iterator[None]:
    usual, here = JITFunction.run, threading.get_ident()

    def run(self: Any, *arguments: Any, warmup: bool = False, **options: Any) -> Any:
        return usual(self, *arguments, warmup=warmup or threading.get_ident() == here, **options)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = usual
