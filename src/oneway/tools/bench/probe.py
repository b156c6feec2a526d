"""Runs a verb as a user would, and writes where its time went: `python -P probe.py FILE VERB …`.

A file that is run and not imported: all but a few modules of Python's own are still to be loaded when the clock starts.
A part is the time in functions that stand for it here, without that of other parts in them.
"""

from __future__ import annotations

import builtins
import functools
import json
import runpy
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

PARTS = {
    "oneway.runs.environment:choose_device": "device",
    "oneway.runs.environment:environment": "device",
    "oneway.engine.memory:require": "device",  # the first that waits until a GPU is initialised
    "oneway.data.load:load": "data",
    "oneway.data.streets.scene:render": "data",
    "oneway.engine.feed:feed": "data",
    "oneway.tools.opening:_read_images": "data",
    "oneway.tools.evaluate_run:read_split": "data",
    "oneway.tools.suggest.candidates:candidates_of_run": "data",
    "oneway.models.named:build": "network",
    "oneway.engine.start:training_state": "network",
    "oneway.runs.weights:locate": "weights",
    "oneway.runs.weights:load_weights": "weights",
    "oneway.runs.model_file:load_model": "weights",
    "oneway.engine.capture:CapturedStep._capture": "capture",
    "oneway.tools.evaluate:score": "validation",
    "oneway.tools.validation:Validator.score": "validation",
    "oneway.tools.validation:Validator.look": "validation",
    "oneway.tools.snapshots:Snapshots.take": "validation",
    "oneway.runs.checkpoint.writer:Writer.save": "saving",
    "oneway.runs.checkpoint.writer:Writer.wait": "saving",
    "oneway.runs.model_file:save_model": "saving",
    "oneway.tools.report.page:write_report": "report",
    "oneway.tools.train:_stop_if_stuck": "work",  # where the loop waits for the device
    "oneway.tools.train:_to_numbers": "work",
    "oneway.tools.predict.command:predict_files": "work",
    "oneway.tools.suggest.scores:score_images": "work",
    "oneway.tools.export.formats:Onnx.write": "work",
    "oneway.tools.export.formats:Pt2.write": "work",
}
"""What stands for a part; imports are another, wherever they happen."""
STEPS = "oneway.engine.capture:choose_step"
FIRST = 3
"""Iterations in which libraries choose algorithms and kernels are compiled."""


class Clock:
    """Seconds of each part, by the wall clock and of all processors together, in the main thread."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}
        self.stack = ["rest"]
        self.last = self.began = time.monotonic(), time.process_time()

    @contextmanager
    def part(self, name: str) -> Any:
        """Within the block, time counts for a part."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.count()
        self.stack.append(name)
        try:
            yield
        finally:
            self.count()
            self.stack.pop()

    def count(self) -> None:
        """Add the time since the last count to the current part."""
        now = time.monotonic(), time.process_time()
        sums = self.parts.setdefault(self.stack[-1], [0.0, 0.0])
        for index in range(2):
            sums[index] += now[index] - self.last[index]
        self.last = now


def watch(clock: Clock) -> None:
    """Count imports from now on, and the functions of `PARTS` as soon as they are imported."""
    load, pending = builtins.__import__, {*PARTS, STEPS}

    def load_timed(name: str, *arguments: Any, **options: Any) -> Any:
        if clock.stack[-1] == "imports":
            module = load(name, *arguments, **options)
        else:
            with clock.part("imports"):
                module = load(name, *arguments, **options)
        if pending and name.startswith("oneway"):  # before the importing module takes a function of it
            for place in [place for place in pending if _is_loaded(place.partition(":")[0])]:
                pending.remove(place)
                _wrap(place, clock)
        return module

    builtins.__import__ = load_timed


def _is_loaded(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _wrap(place: str, clock: Clock) -> None:
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, sys.modules[module])
    setattr(owner, name, _counted(getattr(owner, name), clock, place))


def _counted(function: Callable[..., Any], clock: Clock, place: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        if place == STEPS:
            return _counted_steps(function(*arguments, **options), clock)
        with clock.part(PARTS[place]):
            return function(*arguments, **options)

    return counted


def _counted_steps(advance: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    done = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal done
        done += 1
        with clock.part("first iterations" if done <= FIRST else "work"):
            losses = advance(*arguments, **options)
            if done <= FIRST + 1:
                float(next(iter(losses.values())))  # waits for the device
        return losses

    return counted


def main() -> None:
    """Run the command line, and write what was counted however it ends."""
    file, *sys.argv[1:] = sys.argv[1:]
    clock = Clock()
    watch(clock)
    try:
        runpy.run_module("oneway", run_name="__main__")
    finally:
        clock.count()
        times = {"began": clock.began, "ended": clock.last, "parts": clock.parts}
        with open(file, "w", encoding="utf-8") as output:
            json.dump(times, output)


if __name__ == "__main__":
    main()
