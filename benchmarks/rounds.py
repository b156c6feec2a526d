"""Which score of `oneway suggest` is worth a GPU? A screen for `oneway reproduce rounds`, in minutes on a CPU.

Instead of a network, a linear classifier learns from features of ImageNet's ResNet-18, at some cells of each image.
It goes through rounds of labelling on a folder in which all images have masks; scores choose among the images that are
left, as `oneway suggest` does, or as others would.

    python benchmarks/rounds.py --data DIR --weights resnet18.safetensors --out screen.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import get_args

import numpy as np
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from oneway import data
from oneway.common.terms import SuggestBy
from oneway.config import Data
from oneway.data.check.survey import fingerprint
from oneway.data.dataset import Samples
from oneway.tools.evaluate import Scores, as_input, confusion_matrices
from oneway.tools.suggest.choose import choose, standardise
from oneway.tools.suggest.judge import Floats
from oneway.tools.suggest.scores import Score, balance_classes

ROUNDS = (20, 35, 50)
STRIDE, CELLS = 8, 160  # of a labelled image; one that validates has twice as many
COMPONENTS, STEPS, DECAY = 192, 80, 3e-3
IMAGENET = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 1, 3, 1, 1)


class Known:
    """N images: features and labels of some cells of each, and features of the whole."""

    def __init__(self, samples: Samples, network: torch.nn.Module, cells: int) -> None:
        random = np.random.default_rng(0)
        cells_of, labels_of = [], []
        self.prints: list[bytes] = []
        self.features: list[Floats] = []
        for index in range(samples.labelled):
            x = as_input(torch.from_numpy(np.asarray(samples.image(index))[None].copy()))
            with torch.inference_mode():
                maps = network((x - IMAGENET[0]) / IMAGENET[1])
                size = maps[1].shape[-2:]
                whole = torch.cat([F.interpolate(each, size, mode="bilinear") for each in maps], dim=1)[0].flatten(1).T
            labels = np.asarray(samples.label_map(index))[STRIDE // 2 :: STRIDE, STRIDE // 2 :: STRIDE].ravel()
            chosen = random.choice(min(len(whole), len(labels)), cells, replace=False)
            cells_of.append(whole[chosen])
            labels_of.append(torch.from_numpy(labels[chosen]).long())
            self.prints.append(fingerprint(samples.image(index)))
            self.features.append(torch.cat([each.mean(dim=(0, 2, 3)) for each in maps]).double().numpy())
        self.cells, self.labels = torch.stack(cells_of), torch.stack(labels_of)


def fit(cells: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Weights of a logistic regression, classes balanced by the root of their frequency; the last row is the bias."""
    x, y = F.pad(cells.flatten(0, 1), (0, 1), value=1.0), labels.flatten()
    counts = torch.bincount(y[y < classes], minlength=classes).float()
    weights = torch.zeros(x.shape[1], classes, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=0.03)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, STEPS)
    for _ in range(STEPS):
        loss = F.cross_entropy(x @ weights, y, (counts + 1).rsqrt() * (counts > 0), ignore_index=255)
        optimiser.zero_grad()
        (loss + DECAY * weights[:-1].square().sum()).backward()
        optimiser.step()
        schedule.step()
    return weights.detach()


def by_suggest(known: Known, p: Tensor, labelled: list[int], count: int, by: SuggestBy) -> list[int]:
    """As `oneway suggest --by` chooses."""
    left = [index for index in range(len(p)) if index not in labelled]
    doubts = torch.special.entr(p).mean(dim=1).double().numpy()
    values = dict(zip(left, balance_classes(doubts[left]), strict=True))
    scores, there = standardise(
        *(
            [Score(f"{i}", values.get(i, 0.0), 0.0, known.prints[i], known.features[i]) for i in part]
            for part in (left, labelled)
        )
    )
    return [left[index] for index in choose(scores, there, count, by)[0]]


def by_entropy(known: Known, p: Tensor, labelled: list[int], count: int) -> list[int]:
    """The highest first."""
    order = torch.special.entr(p).sum(dim=2).mean(dim=1).argsort(descending=True).tolist()
    return [index for index in order if index not in labelled][:count]


def by_classes(known: Known, p: Tensor, labelled: list[int], count: int, true: bool = False) -> list[int]:
    """Greedily what adds most to the logarithms of the classes' areas in all labels, as predicted or truly."""
    areas = F.one_hot(known.labels.clamp(max=p.shape[2] - 1), p.shape[2]).float().mean(dim=1)
    shares, total, taken = areas if true else p.mean(dim=1), areas[labelled].sum(dim=0) + 1e-3, list(labelled)
    for _ in range(count):
        gain = torch.log1p(shares / total).sum(dim=1)
        gain[taken] = -1
        taken.append(int(gain.argmax()))
        total = total + shares[taken[-1]]
    return taken[len(labelled) :]


CHOOSE: dict[str, Callable[[Known, Tensor, list[int], int], list[int]]] = {
    **{by: partial(by_suggest, by=by) for by in get_args(SuggestBy)},
    "entropy": by_entropy,
    "classes": by_classes,
    "true classes": partial(by_classes, true=True),
}


def go_round(known: Known, val: Known, classes: int, seed: int) -> dict[str, list[float]]:
    """The mIoU in percent after each round, by who chooses."""
    order = np.random.default_rng(seed).permutation(len(known.cells)).tolist()

    def train(labelled: list[int]) -> tuple[Tensor, float]:
        weights = fit(known.cells[labelled], known.labels[labelled], classes)
        found = (F.pad(val.cells, (0, 1), value=1.0) @ weights).argmax(dim=2)
        return weights, Scores(confusion_matrices(found, val.labels, classes).sum(dim=0)).value

    first = train(order[: ROUNDS[0]])
    results = {"random": [first[1], *(train(order[:count])[1] for count in ROUNDS[1:])]}
    for name, further in CHOOSE.items():
        labelled, (weights, value), values = order[: ROUNDS[0]], first, [first[1]]
        for count in ROUNDS[1:]:
            p = (F.pad(known.cells, (0, 1), value=1.0) @ weights).softmax(dim=2)
            labelled = [*labelled, *further(known, p, labelled, count - len(labelled))]
            weights, value = train(labelled)
            values.append(value)
        results[name] = values
    return results


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train and val, all images with masks")
    parser.add_argument("--weights", type=Path, required=True, help="resnet18.tv_in1k of timm, as .safetensors")
    parser.add_argument("--out", type=Path, required=True, help="JSON file of all values")
    parser.add_argument("--seeds", type=int, default=8)
    asked = parser.parse_args()
    network = timm.create_model("resnet18", features_only=True, out_indices=(1, 2, 3, 4)).eval()
    network.load_state_dict(load_file(asked.weights), strict=False)
    dataset = data.load(Data(name="folder", path=asked.data))
    known, val = Known(dataset.read("train"), network, CELLS), Known(dataset.read("val"), network, 2 * CELLS)
    flat = known.cells.flatten(0, 1)
    centre, scale = flat.mean(dim=0), flat.std(dim=0)
    axes = torch.linalg.eigh(torch.cov(((flat - centre) / scale).T)).eigenvectors[:, -COMPONENTS:]
    for part in (known, val):
        part.cells = (part.cells - centre) / scale @ axes
    found = []
    for seed in range(asked.seeds):
        found.append(go_round(known, val, len(dataset.classes), seed))
        asked.out.write_text(json.dumps({"rounds": ROUNDS, "seeds": found}, indent=1) + "\n", encoding="utf-8")
        print(f"after {seed + 1} seeds: mIoU in %, and the difference to random ± its standard error")
        for name in found[0]:
            over = [[one[name][place] - one["random"][place] for one in found] for place in (1, 2)]
            told = [f"{mean(each):+.1f} ± {stdev(each) / sqrt(len(each)) if seed else 0:.1f}" for each in over]
            print(f"| {name} | {' | '.join(told)} |  {mean(one[name][2] for one in found):.1f}", flush=True)


if __name__ == "__main__":
    main()
