"""Does `oneway suggest` find what the labels lack, and is that worth labelling?

Street scenes, from two thirds of which one class has been removed. Of the 8 labelled scenes, one shows it. For every
seed and method:

1. A model is trained, and scores the other 392 scenes. How well does a score tell the scenes that show the rare class
   from the others? That is the area under the ROC curve; 0.5 is chance. The model's true error, which nobody knows
   without labels, says how much can be expected of any score.
2. Ten more scenes get labels: the first ten of `oneway suggest`, or ten at random. A model is trained on all 18.

Validation scenes are as always, and nearly all of them show the class. Runs that have ended are not repeated.

    python benchmarks/suggest.py --out runs/suggest
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from oneway import data
from oneway.common.streams import stream
from oneway.common.terms import IGNORE
from oneway.config import build, merge
from oneway.config.recipes import recipe
from oneway.data.streets import CLASSES, parts, render, scene
from oneway.runs import choose_device, open_run
from oneway.runs.environment import environment
from oneway.tools.evaluate import as_input
from oneway.tools.explore.compute import probabilities_of
from oneway.tools.suggest.candidates import candidates_of_run
from oneway.tools.suggest.choose import choose
from oneway.tools.suggest.judge import load_judge
from oneway.tools.suggest.scores import score_images
from oneway.tools.train import train

DRAW: dict[str, set[Any]] = {
    "car": {parts.draw_car},
    "person": {parts.draw_person},
    "tree": {parts.draw_tree, parts.draw_hedge},
}
SCENES = {"train": 400, "val": 100}
LABELLED, MORE = 8, 10
NAMES = [f"images/train/{index:03d}.png" for index in range(SCENES["train"])]
SHOWING = set(NAMES[::3])
"""Training scenes that keep the rare class."""

console = Console(soft_wrap=True)


def write_scenes(root: Path, rare: str) -> None:
    """A data folder."""
    placed = scene.place_things

    def place_without(*arguments: Any) -> list[scene.Thing]:
        return [thing for thing in placed(*arguments) if getattr(thing[1], "func", None) not in DRAW[rare]]

    for series, (split, count) in enumerate(SCENES.items()):
        for index in range(count):
            bare = split == "train" and NAMES[index] not in SHOWING
            with mock.patch.object(scene, "place_things", place_without if bare else placed):
                pictures = zip(("images", "masks"), render(series, index, 64, 128), strict=True)
            for kind, pixels in pictures:
                file = root / kind / split / f"{index:03d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(file)
    (root / "dataset.yaml").write_text(f"classes: [{', '.join(CLASSES)}]\nignore: [255]\n", encoding="utf-8")


def trained(out: Path, root: Path, labels: list[str], method: str, seed: int, iterations: int) -> dict[str, Any]:
    """The summary of a run with the settings of `streets` on the scenes of a folder."""
    out.parent.mkdir(parents=True, exist_ok=True)
    listed = out.with_suffix(".txt")
    listed.write_text("\n".join(labels) + "\n", encoding="utf-8")
    changes = {
        "recipe": "folder",
        "method": method,
        "seed": seed,
        "labels": str(listed),
        "data": {"name": "folder", "path": str(root), "cache": str(root.parent / "cache")},
        "train": {"iterations": iterations, "validate_every": iterations},
    }
    config = build(merge(recipe("streets").model_dump(), changes), source="benchmark")
    return train(config, out, resume=(out / "config.yaml").is_file(), console=console)


def judged(path: Path) -> tuple[dict[str, float], list[str]]:
    """How well scores of a run's unlabelled scenes tell the rare class, and which scenes are suggested."""
    run = open_run(path)
    judge = load_judge(run)
    candidates, labelled = candidates_of_run(run, console)
    scores, _ = score_images(judge, candidates, console)
    samples = data.load(run.config.data, console).read("train")
    kl, errors = [], []
    for score in scores:
        index = samples.names.index(score.name)
        kl.append(judge.contradiction(samples.image(index))[0])
        with torch.inference_mode():
            x = as_input(torch.from_numpy(samples.image(index))[None]).to(judge.device)
            p = probabilities_of(judge.network, x)[0].cpu()
        labels = torch.from_numpy(samples.label_map(index))
        errors.append(float((p.argmax(dim=0) != labels)[labels != IGNORE].float().mean()))
    doubt = np.array([score.doubt for score in scores])
    telling = {
        "KL": np.array(kl),
        "KL + doubt": kl + doubt,
        "doubt": doubt,
        "the score": np.array([score.value for score in scores]),
    }
    error = np.array(errors)
    shows = np.array([score.name in SHOWING for score in scores])
    areas = {f"area, {name}": area(v, shows) for name, v in {**telling, "the true error": error}.items()}
    correlations = {
        f"correlation with the true error, {name}": rank_correlation(v, error) for name, v in telling.items()
    }
    there, _ = score_images(judge, labelled, console)
    chosen, _ = choose(scores, there, MORE)
    return areas | correlations, [scores[index].name for index in chosen]


def area(scores: np.ndarray, positive: np.ndarray) -> float:
    """Under the ROC curve: the probability that a positive has a higher score than a negative."""
    differences = scores[positive][:, None] - scores[~positive]
    return float(((differences > 0) + 0.5 * (differences == 0)).mean())


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's: equal values share a rank."""

    def ranks(values: np.ndarray) -> np.ndarray:
        return (values[:, None] > values).sum(axis=1) + 0.5 * (values[:, None] == values).sum(axis=1)

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def measured(out: Path, root: Path, rare: str, method: str, seed: int, iterations: int) -> dict[str, float]:
    """One seed of one method, by measure."""
    order = stream(seed, "scenes of the benchmark").permutation(NAMES).tolist()
    labels = [name for name in order if name not in SHOWING][: LABELLED - 1] + [
        name for name in order if name in SHOWING
    ][:1]
    at_random = [name for name in order if name not in labels][-MORE:]
    folder = out / f"{method}-seed{seed}"
    first = trained(folder / "first", root, labels, method, seed, iterations)
    found, suggested = judged(folder / "first")
    arms = {"8 labels": (labels, first)}
    for arm, more in (("random", labels + at_random), ("suggested", labels + suggested)):
        arms[f"8 + 10 {arm}"] = more, trained(folder / arm, root, more, method, seed, iterations)
    for arm, (names, summary) in arms.items():
        found[f"labels with {rare}, {arm}"] = len(SHOWING.intersection(names))
        found[f"mIoU, {arm}"] = summary["value"]
        found[f"IoU of {rare}, {arm}"] = summary["per_class"][rare]
    return found


def summarised(values: list[float]) -> dict[str, Any]:
    """With mean and sample deviation."""
    return {"values": values, "mean": mean(values), "deviation": stdev(values) if len(values) > 1 else None}


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """In Markdown: means over seeds ± sample deviations."""

    def cell(found: dict[str, Any]) -> str:
        return f"{found['mean']:.2f}" + (f" ± {found['deviation']:.2f}" if found["deviation"] is not None else "")

    measures = next(iter(results.values()))
    lines = [f"| | {' | '.join(results)} |", "|---" * (len(results) + 1) + "|"]
    lines += [
        f"| {name} | {' | '.join(cell(of_method[name]) for of_method in results.values())} |" for name in measures
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs, suggest.json and suggest.md")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--methods", nargs="+", default=["simple-phtps"])
    parser.add_argument("--rare", choices=DRAW, default="car")
    asked = parser.parse_args()
    root = asked.out / f"scenes-{asked.rare}"
    if not (root / "dataset.yaml").is_file():
        write_scenes(root, asked.rare)
    results = {}
    for method in asked.methods:
        seeds = [measured(asked.out, root, asked.rare, method, seed, asked.iterations) for seed in asked.seeds]
        results[method] = {name: summarised([of_seed[name] for of_seed in seeds]) for name in seeds[0]}
    about = environment(choose_device("auto")) | {"command": shlex.join(["python", *sys.argv])}
    settings = {"rare": asked.rare, "iterations": asked.iterations, "seeds": asked.seeds}
    (asked.out / "suggest.json").write_text(json.dumps({**about, **settings, "results": results}, indent=1) + "\n")
    (asked.out / "suggest.md").write_text(table(results), encoding="utf-8")
    console.print(table(results), markup=False, highlight=False)


if __name__ == "__main__":
    main()
