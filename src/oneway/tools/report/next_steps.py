"""What to do with runs once the page about them is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oneway.common.words import command
from oneway.tools.report.facts import RunFacts


@dataclass(frozen=True)
class Step:
    """A command, and what it is for."""

    purpose: str
    command: str


def next_steps(runs: Sequence[RunFacts], segmentation: bool) -> list[Step]:
    """What one may do next: look closer, label more, and put the best model to use."""
    best = max(runs, key=lambda run: run.value)
    shown = (runs[0], runs[-1] if best is runs[0] else best) if len(runs) > 1 else (best,)  # explore takes two
    closer = [
        Step(
            "Perturb images by hand, and see in a browser where a model contradicts itself:", _command("explore", shown)
        ),
        Step(
            f"Find the images to label next for {best.name}, those that it cannot decide on:",
            _command("suggest", [best]),
        ),
    ]
    return [
        *(closer if segmentation else ()),
        Step(
            f"Predict images of your own with {best.name}, here those of a folder named photos:",
            _command("predict", [best], "photos", "--out", "predictions"),
        ),
        Step(
            f"Export {best.name} to one file that runs without oneway:",
            _command("export", [best], "--to", "model.onnx"),
        ),
    ]


def _command(verb: str, runs: Sequence[RunFacts], *rest: str) -> str:
    """A line to copy; a network that is not ours needs its function named."""
    factory = runs[-1].config.model.factory
    own = ("--model.factory", factory) if factory else ()
    return command("oneway", verb, *(run.path for run in runs), *rest, *own)
