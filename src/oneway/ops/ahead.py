"""Kernels compiled before they are needed, side by side: one after another, dozens of them take half a minute."""

# mypy: disable-error-code="import-untyped, import-not-found, unused-ignore"

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

try:
    from triton.runtime import JITFunction
    from triton.runtime._async_compile import AsyncCompileMode
except ImportError:  # no Triton, or one that compiles when it launches, and only then
    JITFunction = AsyncCompileMode = None

THREADS = 16
"""At most; most of their time is spent in compilers that run side by side."""


def compile_ahead(function: Callable[[], object]) -> None:
    """Compiles the kernels that a function of a network launches, but launches none: what it computes is of no use.

    Where Triton cannot, nothing is done, and each kernel is compiled when it is launched first.
    """
    if AsyncCompileMode is None:
        return
    # Backwards in the same thread: whoever else launches kernels meanwhile does launch them.
    one_thread = torch.autograd.set_multithreading_enabled(False)
    threads = min(THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    # What fails here fails again, where it is launched.
    with (
        ThreadPoolExecutor(threads) as pool,
        _without_launching(),
        one_thread,
        AsyncCompileMode(pool, ignore_errors=True),
    ):
        function()


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
