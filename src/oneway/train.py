"""The loop."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oneway import checkpoint, data, models, optim
from oneway import run as runs
from oneway.config import Config
from oneway.data.dataset import Samples
from oneway.data.splits import choose
from oneway.draws import Draws, Plan
from oneway.errors import UserError
from oneway.evaluate import as_json, evaluate
from oneway.feed import feed
from oneway.interrupt import Interrupted, signals_noted
from oneway.methods import METHODS, VARIANTS
from oneway.models.teacher import mean_teacher
from oneway.progress import narrated
from oneway.run import Run, TrainedModel
from oneway.static import StaticStep
from oneway.step import Losses, TrainingState, step


def train(config: Config, out: Path, resume: bool, console: Console) -> dict[str, Any]:
    """Trains as configured into the run folder `out`; returns the summary."""
    method, variant = METHODS[config.method], VARIANTS[config.variant]
    device = runs.choose_device(config.train.device)
    if resume:
        run = runs.open_to_resume(out, config)
        if run.summary is not None:
            console.print(f"{out}: this run has ended; nothing to do.", markup=False, soft_wrap=True)
            return run.summary
    else:
        runs.refuse_occupied(out)

    dataset = data.load(config.data, console)
    samples, held_out = dataset.read("train"), dataset.read("val")
    for remark in dataset.review():
        console.print(f"Note: {remark}", markup=False, highlight=False, soft_wrap=True)
    split, classes = choose(samples, config.labels, config.seed), len(dataset.classes)

    student = models.build(config.model, classes, config.seed).to(device)
    if device.type == "cuda":
        student = student.to(memory_format=torch.channels_last)  # the layout of the fast convolutions
    # A mean teacher is also the model to keep: an average of students is better than the last of them.
    teacher = kept = mean_teacher(student) if method.teacher == "mean" else student
    pretrained = models.pretrained_parameters(student, config.model)
    optimiser = optim.optimiser_for(student, config.optimiser, pretrained)
    state = TrainingState(student, teacher, optimiser)

    iterations = optim.total_iterations(config.train, len(split.labelled))
    validate_every = config.train.validate_every or math.ceil(iterations / 10)
    checkpoint_every = config.train.checkpoint_every or validate_every
    item = {name: index for index, name in enumerate(samples.names)}
    plan = Plan(
        seed=config.seed,
        labelled=tuple(item[name] for name in split.labelled),
        unlabelled=tuple(item[name] for name in split.unlabelled),
        batch_labelled=config.train.batch_labelled,
        batch_unlabelled=config.train.batch_unlabelled,
        scale=config.jitter.scale,
        flip=config.jitter.flip,
        noise_shape=_input_shape(config, samples) if method.perturbation in ("noise", "vat") else (0,),
        perturb_both=not method.supervised and not variant.first_is_clean,
        augment=method.augmentation is not None,
    )

    fed = feed(samples, plan, device)

    # From here on nothing is left to refuse: the run gets its folder, or its last checkpoint.
    done, seconds_before, scores = 0, 0.0, None
    if resume:
        runs.refuse_other_split(run, split)
        done, seconds_before = _resume_from(run, state)
    else:
        run = runs.start(out, config, split)
    advance: Callable[[Draws, float], Losses] = (
        StaticStep(state, fed.store, config, console.print)
        if device.type == "cuda"
        else lambda draws, alpha: step(state, fed.store, draws, config, alpha)
    )
    began = time.monotonic()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def save_checkpoint() -> None:
        checkpoint.save(run.checkpoints, done, seconds_before + time.monotonic() - began, state)

    title = f"{config.method} · {len(split.labelled)} labels · seed {config.seed}"
    with signals_noted() as noted, narrated(console, title, done, iterations) as narrator:
        while done < iterations:
            rate = optim.set_learning_rate(optimiser, config.optimiser.schedule, done, iterations)
            alpha = optim.alpha_at(config.train, done, iterations)
            losses = advance(fed.draws(done), alpha)
            done += 1
            narrator.advanced(done)

            if done % config.train.log_every == 0 or done == iterations:
                values = _read_back(losses, done)  # waits for the device
                run.log(iteration=done, **values, learning_rate=rate)
                narrator.measured(done, values, rate)
            if done % validate_every == 0 or done == iterations:
                scores = evaluate(kept, held_out, classes, dataset.task)
                run.log(iteration=done, **{scores.metric: scores.value}, per_class=scores.per_class)
                narrator.validated(done, scores.metric, scores.value)
            if done % checkpoint_every == 0 or done == iterations:
                _read_back(losses, done)  # what is not finite is not worth keeping
                save_checkpoint()
            if (signal := noted()) is not None and done < iterations:
                save_checkpoint()
                raise Interrupted(signal, f"Stopped after {done} of {iterations} iterations; --resume continues {out}.")
        stopped_by = noted()

    runs.save_model(out / "model.safetensors", TrainedModel(kept, dataset.classes, dataset.colours), config.model)
    # Killed between the last checkpoint and here, a run comes back with nothing left to train, and no scores yet.
    scores = scores or evaluate(kept, held_out, classes, dataset.task)
    summary = {
        "method": config.method,
        "variant": config.variant,
        "seed": config.seed,
        "labels": len(split.labelled),
        "iterations": iterations,
        **as_json(scores, dataset.classes),
        "validation_samples": len(held_out),
        "seconds": seconds_before + time.monotonic() - began,
        "peak_memory_mib": _peak_memory_mib(device),
    }
    run.write("summary.json", summary)
    if stopped_by is not None:
        raise Interrupted(stopped_by, f"Stopped after the last iteration; {out} is complete.")
    return summary


def _resume_from(run: Run, state: TrainingState) -> tuple[int, float]:
    """Restores the newest checkpoint, if there is one; returns iterations done and seconds spent."""
    saved = checkpoint.existing(run.checkpoints)
    done, seconds = checkpoint.load(saved[-1], state) if saved else (0, 0.0)
    run.forget_metrics_after(done)
    return done, seconds


def _input_shape(config: Config, samples: Samples) -> tuple[int, ...]:
    """Of one input of the network: a crop, or a point."""
    channels = samples.pixels.shape[1]
    return (channels,) if config.jitter.crop is None else (channels, *config.jitter.crop)


def _read_back(losses: Losses, iteration: int) -> dict[str, float]:
    values = {name: float(loss) for name, loss in losses._asdict().items() if loss is not None}
    if not all(math.isfinite(value) for value in values.values()):
        raise UserError(
            f"The loss is not finite at iteration {iteration} ({values}). "
            "Start another run with a lower --optimiser.learning-rate."
        )
    return values


def _peak_memory_mib(device: torch.device) -> float:
    """Most device memory allocated so far; on a CPU, the most memory the process has had."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
