"""Faster imports of large libraries, and of packages that need them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"

MATPLOTLIB_SETTINGS = "matplotlibrc"
"""Matplotlib obeys a file of this name in the working folder before all others, as soon as it is imported."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Within the block, Python's garbage collector is off.

    timm creates so many objects on import, none of them garbage, that the collector takes a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def on_demand(package: str, **modules: tuple[str, ...]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that gathers names of its modules, and imports a module when one is asked for."""

    def find(name: str) -> Any:
        for module, names in modules.items():
            if name in names:
                return getattr(import_module(f"{package}.{module}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def import_timm() -> Any:
    """The library, without PyTorch's compiler, which takes longer to import than timm and PyTorch together.

    timm marks a few functions that are not to be compiled, and imports torchvision, which imports the compiler to ask
    it one thing in a function that nothing here calls. Stand-ins do both; whatever else is asked of them, in another
    version, imports the compiler.

    All threads see the stand-ins, and one that imports a part of the compiler meanwhile would fail. So they are for
    the main thread of our own command line, whose other threads import no such thing; elsewhere, timm is imported as
    by anyone.
    """
    alone = _own_process and threading.current_thread() is threading.main_thread()
    with_compiler = not alone or COMPILER in sys.modules or "timm" in sys.modules
    with collector_paused(), nullcontext() if with_compiler else _compiler_on_demand():
        return import_module("timm")


_own_process = False


def claim_process() -> None:
    """Say that this process runs our command line, and nothing of anyone who has imported the package."""
    global _own_process
    _own_process = True


@contextmanager
def _compiler_on_demand() -> Iterator[None]:
    package, tools = ModuleType(COMPILER), ModuleType(f"{COMPILER}.utils")
    stand_ins = {module.__name__: module for module in (package, tools)}

    def step_aside() -> None:
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]

    def genuine(name: str) -> Any:
        step_aside()
        return import_module(name)

    def disable(function: Any = None, recursive: bool = True, **options: Any) -> Any:
        if function is None or not recursive:
            return genuine(COMPILER).disable(function, recursive, **options)
        function._torchdynamo_disable = True  # which is what the compiler looks for
        return function

    def found_in(module: str, name: str) -> Any:
        if name.startswith("__"):  # Python asks for some of those on its own
            raise AttributeError(name)
        return getattr(genuine(module), name)

    vars(package).update(disable=disable, __getattr__=partial(found_in, COMPILER))
    vars(tools).update(
        is_compile_supported=lambda device: found_in(tools.__name__, "is_compile_supported")(device),
        __getattr__=partial(found_in, tools.__name__),
    )
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        step_aside()


def import_report() -> None:
    """What a report needs, in a thread, so that nobody waits for Matplotlib; what fails here fails where it is used."""
    if not os.path.lexists(MATPLOTLIB_SETTINGS):  # or importing it would change the folder of all threads
        with suppress(Exception):
            import_module("oneway.tools.report")
