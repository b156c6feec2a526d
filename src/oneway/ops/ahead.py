"""Compile kernels ahead of time and in parallel: one after another, dozens of them take half a minute."""

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

from oneway.common.threads import count_cores
from oneway.ops.backend import triton
from oneway.ops.compilers import Compilers

try:
    from triton.runtime import JITFunction
    from triton.runtime._async_compile import AsyncCompileMode
except ImportError:  # no Triton, or one that compiles when it launches, and only then
    JITFunction = AsyncCompileMode = None

THREADS = 16
"""The most compiler threads; most of their time is spent waiting for compiler processes."""

FEW_CORES = 4
"""The cores up to which compiler processes would not be faster than threads."""

_LOCK = threading.Lock()
"""Held while the launching of kernels is replaced, which is so for the whole process."""


def start_compilers() -> Compilers | None:
    """Start compiler processes for `compile_ahead`; None where they would not help."""
    with suppress(OSError):
        return Compilers() if AsyncCompileMode is not None and count_cores() > FEW_CORES else None
    return None


def compile_ahead(function: Callable[[], object], compilers: Compilers | None = None) -> None:
    """Run a function without launching its kernels: they are compiled and loaded; its results are meaningless.

    Outputs of kernels are zeros. Where Triton cannot compile asynchronously, nothing is done, and each kernel is
    compiled at its first launch. Threads that call this take turns; launches elsewhere are not held up.
    """
    if AsyncCompileMode is None:
        return
    with (
        _LOCK,
        _Threads(compilers, min(THREADS, count_cores()), initializer=_use_device, initargs=_device()) as pool,
        _without_launching(),
        # Backward passes stay in this thread: launches from other threads must not be suppressed.
        torch.autograd.set_multithreading_enabled(False),
        AsyncCompileMode(pool, ignore_errors=True),  # what fails here fails again, where it is launched
        _Zeros(),
    ):
        function()


def hash_compiler() -> None:
    """Compute Triton's hash of itself: once in a process it reads half a gigabyte, before it can look up a kernel."""
    from triton.runtime.cache import triton_key

    triton_key()


def cache_folder() -> Path:
    """The folder of Triton's cache of compiled kernels."""
    return Path(triton.knobs.cache.dir)


class _Threads(ThreadPoolExecutor):
    """Threads that also load the compiled kernels: some versions of Triton run a C compiler then."""

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
    """Fill new memory with zeros: no kernel fills it, and leftover bytes might be no valid labels or indices."""

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
