"""Whether the fast engine trains the same model as plain PyTorch: both from the same start and with the same draws.

    python benchmarks/parity.py --data CAMVID --out parity.json     # needs a GPU

Three engines take part: plain PyTorch in float32, and ours in float32 and in bfloat16. A fourth tells what no engine
can help: plain PyTorch once more, channels last, so that its convolutions add in another order. TF32 is off. Losses
are those of the whole objective, L_s + α L_c; training is chaotic, so that the smallest difference grows with every
step.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import torch

from oneway import data, models
from oneway.config import Config
from oneway.config.recipes import recipe
from oneway.data.splits import choose, places
from oneway.draws import draw
from oneway.engine.balance import class_weights
from oneway.engine.start import plan_of, training_state
from oneway.engine.store import Store
from oneway.runs.environment import environment
from oneway.tools.bench.cases import make_iteration

ENGINES = {
    "plain": {"engine": "plain", "precision": "float32"},
    "plain, channels last": {"engine": "plain", "precision": "float32"},
    "oneway, float32": {"engine": "auto", "precision": "float32"},
    "oneway, bfloat16": {"engine": "auto", "precision": "bfloat16"},
}


def losses_of(engine: str, config: Config, iterations: int, device: torch.device) -> list[float]:
    """The objective at every iteration."""
    config = config.changed(train=ENGINES[engine])
    dataset = data.load(config.data)
    samples = dataset.read("train")
    labelled, unlabelled = places(samples, choose(samples, config.labels, config.seed))
    weights = class_weights(samples, labelled, len(dataset.classes)) if config.train.balance == "frequency" else None
    network = models.build(config.model, len(dataset.classes), config.seed)
    state = training_state([network], (), config, device, class_weights=weights)
    plan = plan_of(config, labelled, unlabelled, network=state.student)
    if engine.endswith("channels last"):
        state.student.to(memory_format=torch.channels_last)
    advance = make_iteration(state, config, Store.hold(samples, device))
    curve = []
    for iteration in range(iterations):
        losses = advance(draw(plan, iteration))
        curve.append(float(losses["supervised"]) + config.train.alpha * float(losses["consistency"]))
    return curve


def main() -> None:
    """Prints and writes how far the curves are apart."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True, help="CamVid")
    arguments.add_argument("--out", type=Path, required=True, help="JSON file")
    arguments.add_argument("--iterations", type=int, default=200)
    asked = arguments.parse_args()

    device = torch.device("cuda")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    config = recipe("camvid")
    config = config.changed(data={"path": asked.data})
    curves = {engine: losses_of(engine, config, asked.iterations, device) for engine in ENGINES}

    plain = curves["plain"]
    results: dict[str, object] = {"environment": environment(device), "curves": curves}
    for engine, curve in curves.items():
        apart = [abs(a - b) / b for a, b in zip(curve, plain, strict=True)]
        last = mean(curve[-50:]) / mean(plain[-50:]) - 1
        results[engine] = {"first_20_largest": max(apart[:20]), "first_20": apart[:20], "last_50_mean": last}
        print(f"{engine:22} first 20 within {max(apart[:20]):.1e}, mean of the last 50 {100 * last:+.2f} %", flush=True)
    asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
