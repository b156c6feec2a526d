"""Trains a run: reads the data, runs the iterations, validates, saves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console

from oneway import __version__, data, runs
from oneway import config as configuration
from oneway.common import words
from oneway.common.address_space import require_margin
from oneway.common.errors import UserError
from oneway.common.failure import note_run_folder
from oneway.common.interrupt import Interrupted, defer_signals
from oneway.common.progress import ProgressBar
from oneway.common.run_files import SUMMARY
from oneway.config import Config
from oneway.data.dataset import Samples
from oneway.data.splits import Split, choose, places
from oneway.draws import Plan, draw
from oneway.engine import memory, optim
from oneway.engine.balance import class_weights
from oneway.engine.capture import choose_step
from oneway.engine.feed import Feed, feed
from oneway.engine.lone import refuse_lone_values
from oneway.engine.ranks import Ranks, join
from oneway.engine.shares import refuse_indivisible
from oneway.engine.start import batch_of, plan_of, training_state
from oneway.engine.state import TrainingState
from oneway.engine.step import Measured
from oneway.methods import METHODS
from oneway.runs import TrainedModel, atomic, continuation
from oneway.runs.checkpoint.state import bytes_needed, tensors_of
from oneway.runs.checkpoint.state import restore as restore_tensors
from oneway.runs.checkpoint.writer import Writer, open_writer
from oneway.runs.continuation import Notes
from oneway.tools.evaluate import METRIC_NAMES, as_json, evaluate
from oneway.tools.networks import digest_of, load_teacher, locate_weights, prepare, refuse_other_classes, student_seed

QUICK_ON_A_CPU = 1e9
"""Pixels to train on, at full width, that take about an hour."""


def train(config: Config, out: Path, resume: bool, console: Console, allow_changes: bool = False) -> dict[str, Any]:
    """Trains as configured into the run folder `out`; returns the summary.

    Args:
        config: Every setting.
        out: An empty or new folder; with `resume`, that of a run to continue.
        resume: Continue from the last checkpoint.
        console: Where progress is shown.
        allow_changes: Continue although settings, split or data are not those the run was started with.
    """
    config = configuration.build(config.model_dump(), "the configuration")  # it may have been changed unchecked
    ranks = join(config.train.device)
    console = console if ranks.is_first else Console(quiet=True)
    with ranks.watching(), note_run_folder(out), memory.explained(config), ExitStack() as resources:
        return _train(config, out, resume, console, allow_changes, resources, ranks)


def _train(
    config: Config,
    out: Path,
    resume: bool,
    console: Console,
    allow_changes: bool,
    resources: ExitStack,
    ranks: Ranks,
) -> dict[str, Any]:
    say = partial(words.say, console)

    refuse_indivisible(config, ranks.of)
    ranks.require_same({"oneway": __version__, "PyTorch": torch.__version__, "--resume": resume} | config.flat())
    device = runs.choose_device(ranks.device(config.train.device))
    # The first process, or the only one, has the run folder; what it finds there, it tells the others.
    continued, noted = None, Notes(frozenset(), None)
    if resume:
        config = ranks.same(partial(continuation.keep_paths, out, config, say))
        if (ended := ranks.same(partial(continuation.load_ended, out, config))) is not None:
            of = ranks.same(lambda: "" if config.data.path is None else f" of {runs.open_run(out).config.data.path}")
            say(f"{out}: this run{of} has ended; nothing to do.")
            return ended
        if ranks.is_first:
            continued = resources.enter_context(continuation.reopen(out, config, allow_changes))
        noted = ranks.same(lambda: continuation.read_notes(continued) if continued else noted)
    elif ranks.is_first:
        runs.refuse_occupied(out)
    # Minutes of decoding would be in vain without them. A checkpoint has the weights, but not a teacher from elsewhere.
    with ranks.in_turn():
        weights = None if noted.filled else locate_weights(config.model)
        teacher = load_teacher(config)
    notes: dict[str, Any] = {} if teacher is None else {"teacher": digest_of(teacher)}
    if continued is not None and teacher is not None:
        continuation.keep_teacher(continued, noted.teacher, notes["teacher"])

    with ranks.in_turn():
        dataset = data.load(config.data, console)
        samples, held_out = dataset.read("train"), dataset.read("val")
    facts = {"training images": samples.content, "validation images": held_out.content, "classes": dataset.classes}
    pool = samples.pool
    ranks.require_same(facts | {"teacher": notes.get("teacher"), "pool": None if pool is None else pool.record})
    for remark in dataset.review():
        say(f"Note: {remark}")

    def find_split() -> Split:
        if continued is None:
            split = replace(choose(samples, config.labels, config.seed, held_out.names), validation=held_out.content)
        else:
            split = continuation.keep_split(continued, samples, held_out)
        return split.know(dataset.digests("train"), held_out.names)

    split = ranks.same(find_split)
    classes = len(dataset.classes)
    if teacher is not None:
        refuse_other_classes(teacher, dataset.classes, config)

    task, crop = config.data.task, config.jitter.crop
    prepared = [
        prepare(config.model, classes, student_seed(config.seed, which), task, crop, weights, noted.filled)
        for which in range(METHODS[config.method].students)
    ]
    for remark in prepared[0].remarks:
        say(f"Note: {remark}")
    if filled := prepared[0].names:
        notes["pretrained"] = filled
    refuse_lone_values(prepared[0].network, config)
    pretrained = [parameter for each in prepared for parameter in each.pretrained]
    students, taught_by = [each.network for each in prepared], None if teacher is None else teacher.network
    labelled, unlabelled = places(samples, split)
    balanced = class_weights(samples, labelled, classes) if config.train.balance == "frequency" else None
    state = training_state(students, pretrained, config, device, taught_by, balanced)
    kept = state.kept
    memory.require(state.student, bytes_needed(state), config, device)

    iterations = optim.total_iterations(config.train, len(split.labelled))
    validate_every = config.train.validate_every or math.ceil(iterations / 10)
    checkpoint_every = config.train.checkpoint_every or validate_every
    plan = plan_of(config, labelled, unlabelled, channels=samples.pixels.shape[1], network=state.student)
    fed = feed(samples, plan, device, config.jitter, ranks.share)
    resources.callback(fed.close)
    if config.data.task == "segmentation":
        megabytes = (samples.pixels.nbytes + samples.labels.nbytes) / 1e6
        further = "" if pool is None else f", and {len(pool):,} of a pool"
        say(f"{len(samples)} training images, {megabytes:,.0f} MB{further}, {fed.place}.")
    if device.type == "cpu" and (note := slow_on_cpu(config, iterations)):
        say(note)

    # Everything has been checked: the run gets its folder, or its last checkpoint.
    done, seconds_before, scores, run = 0, 0.0, None, None
    if continued is not None:
        run = continued.run
        done, seconds_before = continuation.restore(continued, split, state, iterations, checkpoint_every, say)
        say(f"{out}: continues after {done} of {iterations} iterations{ranks.in_words}.")
    elif ranks.is_first:
        run = resources.enter_context(runs.start_run(out, config, split, bytes_needed(state)))
        if ranks.of > 1:
            say(f"{out}: starts{ranks.in_words}.")
    if run is not None and not atomic.sync_folder(out):
        say(f"Note: the file system of {out} cannot sync folders: a power cut there may cost the last checkpoints.")
    done, seconds_before = ranks.same(lambda: (done, seconds_before))
    if not ranks.alone:
        found = ranks.same_tensors(lambda: tensors_of(state))
        if not ranks.is_first:
            restore_tensors(state, found)
    advance = choose_step(state, fed.store, config, say, ranks)
    began = time.monotonic()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    def save_checkpoint(wait: bool = False) -> None:
        if checkpoints is not None:
            with ranks.patient():
                checkpoints.save(done, seconds_before + time.monotonic() - began, state)
                if wait:
                    checkpoints.wait()

    def stopped() -> str:
        return f"Stopped after {done} of {iterations} iterations; --resume continues {out}."

    def stop(signal: int) -> NoReturn:
        if done:
            save_checkpoint(wait=True)
        ranks.same(lambda: None)  # nobody leaves before it is on the disk
        raise Interrupted(signal, stopped())

    title = f"{config.method} · {len(split.labelled)} labels · seed {config.seed}"
    about = {"configuration": config.model_dump(mode="json"), "split": split.hash}
    with (
        defer_signals() as signal_received,
        ProgressBar(console, title, iterations, done, transient=False) as bar,
        writer_for(run, about, notes) as checkpoints,
        ranks.expecting_progress(),
    ):
        while done < iterations:
            rate = optim.set_learning_rate(state.optimiser, config.optimiser.schedule, done, iterations)
            alpha = optim.alpha_at(config.train, done, iterations)
            if (signal := _await_images(fed, done, ranks, signal_received)) is not None:
                stop(signal)
            try:
                draws = fed.draws(done)
            except UserError as error:
                if pool is None or not done:
                    raise
                save_checkpoint(wait=True)
                raise UserError(f"{error} {stopped()}") from error
            losses = advance(draws, alpha, optim.warm_up_at(config.train, done))
            require_margin()
            done += 1
            bar.update(done)

            logged = done % config.train.log_every == 0 or done == iterations
            if logged or done % config.train.most_skipped == 0:
                # Waits for the device. A run that is shorter than that must have learnt something too.
                most = min(config.train.most_skipped, iterations)
                skipped = _stop_if_stuck(state, most, plan, samples, done, rate)
            if logged and run is not None:
                values = _to_numbers(losses)
                run.log(iteration=done, **values, learning_rate=rate, **({"skipped": skipped} if skipped else {}))
                bar.show("  ".join([*(f"{name} {value:.3f}" for name, value in values.items()), f"lr {rate:.1e}"]))
            if len(held_out) and (done % validate_every == 0 or done == iterations):
                scores = evaluate(kept, held_out, classes, ranks=ranks)
                if run is not None:
                    run.log(iteration=done, **{scores.metric: scores.value}, per_class=scores.per_class)
                value = f"{scores.value:.1f} %"
                bar.show_result(f"val {value}", f"validation {METRIC_NAMES[scores.metric]} {value}")
            if done % checkpoint_every == 0 or done == iterations:
                save_checkpoint()
            if (signal := ranks.agree(signal_received())) is not None and done < iterations:
                stop(signal)
        signal_at_end = ranks.agree(signal_received(), now=True)

    if run is not None:
        run.require()
        model = TrainedModel(kept, dataset.classes, dataset.colours, dataset.masks)
        runs.save_model(run.model_file, model, config.model)
    # A run that was killed between its last checkpoint and here is continued with nothing left to train, and no scores.
    scores = scores or evaluate(kept, held_out, classes, ranks=ranks)
    summary = {
        "method": config.method,
        "variant": config.variant,
        "seed": config.seed,
        "labels": len(split.labelled),
        "iterations": iterations,
        **as_json(scores, dataset.classes),
        "validation_samples": len(held_out),
        "skipped_steps": int(state.skips[0]),
        "seconds": seconds_before + time.monotonic() - began,
        "peak_memory_mib": memory.peak_mib(device),
    }
    if pool is not None and pool.broken:
        summary["broken_images"] = len(pool.broken)
    if run is not None:
        if changes := continuation.list_changes(run):
            summary["changes"] = changes
        run.write(SUMMARY, summary)
    summary = ranks.same(lambda: summary)
    if summary["skipped_steps"]:
        say(f"Note: {summary['skipped_steps']} of {iterations} steps were not finite, and were skipped.")
    if signal_at_end is not None:
        raise Interrupted(signal_at_end, f"Stopped after the last iteration; {out} is complete.")
    return summary


def _await_images(fed: Feed, iteration: int, ranks: Ranks, signal_received: Callable[[], int | None]) -> int | None:
    """Waits until the images of an iteration are there; where a lone process gets a signal before, returns that."""
    if fed.ready(iteration):
        return None
    with ranks.patient():
        while not fed.ready(iteration):
            if ranks.alone and (signal := signal_received()) is not None:
                return signal
    return None


def writer_for(
    run: runs.Run | None, about: Mapping[str, Any], notes: Mapping[str, Any]
) -> AbstractContextManager[Writer | None]:
    """What writes the checkpoints, in the process that has the run folder."""
    if run is None:
        return nullcontext()
    return open_writer(run.checkpoints, about, run.path / runs.METRICS, notes, run.require)


def slow_on_cpu(config: Config, iterations: int) -> str:
    """A note where segmentation would take hours on a CPU, with what to do; else nothing."""
    height, width = config.jitter.crop or (0, 0)
    pixels = iterations * sum(batch_of(config)) * height * width
    if config.data.task != "segmentation" or pixels * config.model.width**2 <= QUICK_ON_A_CPU:
        return ""
    if torch.cuda.is_available():
        return f"Note: with --train.device {config.train.device} this will take hours. Leave it out to use the GPU."
    return (
        "Note: there is no GPU here, and this will take hours. For a first result in minutes, add "
        "--model.width 0.25 --model.weights none --jitter.crop 160 160 --train.iterations 300."
    )


def _to_numbers(losses: Measured) -> dict[str, float]:
    """The losses as numbers, without those that are not finite."""
    values = {name: float(loss) for name, loss in losses.items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _stop_if_stuck(state: TrainingState, most: int, plan: Plan, samples: Samples, done: int, rate: float) -> int:
    """The number of steps skipped so far; a UserError where so many in a row were that nothing is learnt any more."""
    skipped, in_a_row = map(int, state.skips.tolist())
    if in_a_row < most:
        return skipped
    table = draw(plan, done - 1)
    names = [samples.name(item) for item in (*table.labelled.item.tolist(), *table.unlabelled.item.tolist())]
    raise UserError(
        f"The last {in_a_row} steps up to iteration {done} were not finite and were skipped ({skipped} in all), at "
        f"learning rate {rate:.1e}, the last of them with {words.listed(names, most=8)}. "
        "Look at these images, or start another run with a lower --optimiser.learning-rate (or, for weights that came "
        "with --model.weights, --optimiser.learning-rate-pretrained)."
    )
