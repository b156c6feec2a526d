"""Trains a run: opens it, runs the iterations, validates, saves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import torch
from rich.console import Console

from oneway import config as configuration
from oneway import runs
from oneway.common import words
from oneway.common.address_space import require_margin
from oneway.common.allocator import keep_freed_memory
from oneway.common.errors import UserError
from oneway.common.failure import note_run_folder
from oneway.common.interrupt import Interrupted, defer_signals
from oneway.common.progress import ProgressBar
from oneway.common.run_files import SUMMARY, VALIDATION
from oneway.common.streams import stream
from oneway.config import Config
from oneway.draws import Draws, draw
from oneway.engine import memory, optim
from oneway.engine.capture import WARM_UP, choose_step
from oneway.engine.refusals import refuse_different_memory, refuse_replaced_memory
from oneway.engine.rendezvous import join
from oneway.engine.step import Measured
from oneway.methods import METHODS
from oneway.models.seed import seed_device
from oneway.runs import TrainedModel
from oneway.runs.checkpoint.writer import Writer
from oneway.runs.kept_settings import keep_resolved_settings
from oneway.tools.evaluate import METRIC_NAMES, as_json, by_image_as_json
from oneway.tools.loggers import About, follow_run, require_services, services_of
from oneway.tools.opening import ONLY_ONE, Training, Turn, find_ended, open_training, require_agreement
from oneway.tools.snapshots import Snapshots


def train(
    config: Config,
    out: Path,
    resume: bool,
    console: Console,
    allow_changes: bool = False,
    log: Sequence[str] = (),
    turn: Turn = ONLY_ONE,
    beside: Callable[[], object] | None = None,
) -> dict[str, Any]:
    """Train as configured into the run folder `out`; returns the summary.

    Args:
        config: Every setting.
        out: An empty or new folder; with `resume`, that of a run to continue.
        resume: Continue from the last checkpoint.
        console: Where progress is shown.
        allow_changes: Continue although settings, split or data are not those the run was started with.
        log: Services that take its curves (`loggers.TITLES`); a continued run also goes on where it was logged.
        turn: Of several trainings in a row.
        beside: Called in a thread of its own while iterations run: a GPU leaves the processor little to do.
    """
    require_services(log)  # before anything else is done
    config = configuration.build(config.model_dump(), "the configuration")  # it may have been changed unchecked
    ranks = join(config.train.device)
    console = console if ranks.is_first else Console(quiet=True)
    say = partial(turn.say, console)
    with ranks.watching(), note_run_folder(out), memory.explain_out_of_memory(config):
        require_agreement(config, resume, ranks)
        if resume:
            config = ranks.broadcast(partial(keep_resolved_settings, out, config, say))
            if (ended := find_ended(config, out, ranks, say)) is not None:
                return ended
        with (
            open_training(config, out, resume, allow_changes, ranks, console, say) as training,
            _watched(training, log),
            keep_freed_memory(training.device.type == "cpu"),
        ):
            signal_at_end = _iterate(training, console, turn.title, beside)
            summary = _finish(training)
        if signal_at_end is not None:
            report = words.command("oneway", "report", out)
            complete = f"Stopped after the last iteration; {out} is complete. `{report}` writes its report."
            raise Interrupted(signal_at_end, complete)
        return summary


@contextmanager
def _watched(training: Training, log: Sequence[str]) -> Iterator[None]:
    """Within the block, a run has its pictures and its loggers, in the process that has the run folder."""
    run, say = training.run, training.say
    if run is None:
        yield
        return
    snapshots = training.snapshots = Snapshots(run.path, training.dataset, training.held_out, say)
    about = About(str(run.path), training.dataset.classes, training.config.flat(), len(snapshots.shown))
    with follow_run(services_of(run.path, log, say), about, say) as training.hear_loggers:
        yield


def _iterate(training: Training, console: Console, turn: str, beside: Callable[[], object] | None) -> int | None:
    """Run the iterations that are left: train, log, validate and save.

    Returns:
        A signal that came during the last iteration: nothing is left to stop then.

    Raises:
        Interrupted: A signal came before, and a checkpoint has been saved.
    """
    config, ranks, state = training.config, training.ranks, training.state
    iterations, begun = training.iterations, training.done
    advance = choose_step(state, training.fed.store, config, training.say, ranks, iterations)
    training.started = time.monotonic()
    if training.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(training.device)
    title = f"{turn}{config.method} · {words.counted(len(training.split.labelled), 'label')} · seed {config.seed}"
    with (
        defer_signals() as signal_received,
        ProgressBar(console, title, iterations, training.done, transient=False) as bar,
        _writer_for(training) as training.checkpoints,
        ranks.expecting_progress(),
    ):
        while (done := training.done) < iterations:
            draws = _await_draws(training, signal_received)
            rate = optim.set_learning_rate(state.optimiser, config.optimiser.schedule, done, iterations)
            alpha, warm_up = optim.alpha_at(config.train, done, iterations), optim.warm_up_at(config.train, done)
            with _seeded(training):
                losses = advance(draws, alpha, warm_up, done / iterations)
            require_margin()
            training.done += 1
            bar.update(training.done)
            if beside is not None and training.done > begun + WARM_UP:  # which leave the processor no time
                Thread(target=beside, name="beside", daemon=True).start()
                beside = None

            if training.done == begun + 1:
                refuse_replaced_memory(state)
            if training.done == begun + 1 or training.is_due(training.checkpoint_every):
                refuse_different_memory(state.models.heads, ranks)
            if training.is_due(config.train.log_every) or training.is_due(config.train.most_skipped):
                skipped = _stop_if_stuck(training, rate)  # waits for the device
            if training.is_due(config.train.log_every):
                _log(training, bar, _to_numbers(losses), rate, skipped)
            if len(training.held_out) and training.is_due(training.validate_every):
                _validate(training, bar)
            if training.is_due(training.checkpoint_every):
                _save_checkpoint(training)
            signal = ranks.agree_on_signal(signal_received())
            if signal is not None and training.done < iterations:
                _stop(training, signal)
        return ranks.agree_on_signal(signal_received(), now=True)


def _seeded(training: Training) -> AbstractContextManager[None]:
    """Within the block, what code of the user's draws by itself, as dropout does, is a function of the iteration.

    Ours draws nothing by itself. Each process has numbers of its own.
    """
    config, ranks = training.config, training.ranks
    if config.model.factory is None and not METHODS[config.method].own:
        return nullcontext()
    purpose = f"own code in process {ranks.rank}"
    return seed_device(int(stream(config.seed, purpose, training.done).integers(2**32)), training.device)


def _await_draws(training: Training, signal_received: Callable[[], int | None]) -> Draws:
    """The draws of the next iteration, whose images are there then; a lone process may be stopped before.

    Where an image of a pool cannot be read, what has been done is saved.
    """
    fed, ranks, done = training.fed, training.ranks, training.done
    if not fed.ready(done):
        with ranks.pause_watchdog():
            while not fed.ready(done):
                if ranks.alone and (signal := signal_received()) is not None:
                    _stop(training, signal)
    try:
        return fed.draws(done)
    except UserError as error:
        if training.samples.pool is None or not done:
            raise
        _save_checkpoint(training, wait=True)
        raise UserError(f"{error} {_stopped(training)}") from error


def _stop(training: Training, signal: int) -> NoReturn:
    """Save a checkpoint, and end training."""
    if training.done:
        _save_checkpoint(training, wait=True)
    training.ranks.broadcast(lambda: None)  # nobody leaves before it is on the disk
    raise Interrupted(signal, _stopped(training))


def _stopped(training: Training) -> str:
    return f"Stopped after {training.done} of {training.iterations} iterations; --resume continues {training.out}."


def _save_checkpoint(training: Training, wait: bool = False) -> None:
    """Save a checkpoint, in the process that has the run folder; may wait until it is on the disk."""
    if training.checkpoints is not None:
        with training.ranks.pause_watchdog():
            training.checkpoints.save(training.done, training.elapsed, training.state)
            if wait:
                training.checkpoints.wait()


def _log(training: Training, bar: ProgressBar, losses: dict[str, float], rate: float, skipped: int) -> None:
    if training.run is None:
        return
    more = {"skipped": skipped} if skipped else {}
    training.run.log(iteration=training.done, **losses, learning_rate=rate, **more)
    training.hear_loggers()
    bar.show("  ".join([*(f"{name} {value:.3f}" for name, value in losses.items()), f"lr {rate:.1e}"]))


def _validate(training: Training, bar: ProgressBar) -> None:
    validator, snapshots = training.validator, training.snapshots
    due = [] if snapshots is None else snapshots.due(training.done, training.validate_every, training.iterations)
    scores = training.scores = validator.score(due)
    if training.run is not None:
        if snapshots is not None:  # first: who reads the line will look for them
            snapshots.take(training.done, [validator.look(index) for index in due])
        training.run.log(iteration=training.done, **{scores.metric: scores.value}, per_class=scores.per_class)
    value = f"{scores.value:.1f} %"
    bar.show_result(f"val {value}", f"validation {METRIC_NAMES[scores.metric]} {value}")


def _finish(training: Training) -> dict[str, Any]:
    """Save the model and the summary of a run that has done its iterations, and return the summary."""
    config, dataset, run, pool = training.config, training.dataset, training.run, training.samples.pool
    if run is not None:
        run.require()
        how = dataset.masks, dataset.image_style, dataset.reduction
        model = TrainedModel(training.state.kept, dataset.classes, dataset.colours, *how)
        runs.save_model(run.model_file, model, config.model)
    # A run that was killed between its last checkpoint and here is continued with nothing left to train, and no scores.
    scores = training.scores or training.validator.score()
    summary = {
        "method": config.method,
        "variant": config.variant,
        "seed": config.seed,
        "labels": len(training.split.labelled),
        "iterations": training.iterations,
        **as_json(scores, dataset.classes),
        "validation_samples": len(training.held_out),
        "skipped_steps": int(training.state.skips[0]),
        "seconds": training.elapsed,
        "peak_memory_mib": memory.peak_mib(training.device),
    }
    if training.reviewed:
        summary["about_images"] = [*training.reviewed]
    if pool is not None and pool.broken:
        summary["broken_images"] = len(pool.broken)
    if run is not None:
        if changes := run.changes:
            summary["changes"] = changes
        if scores.by_image is not None:
            run.write_lines(VALIDATION, by_image_as_json(scores.by_image, training.held_out.names, scores.groups))
        run.write(SUMMARY, summary)
    summary = training.ranks.broadcast(lambda: summary)
    if summary["skipped_steps"]:
        training.say(
            f"Note: {summary['skipped_steps']} of {training.iterations} steps were not finite, and were skipped."
        )
    return summary


def _writer_for(training: Training) -> AbstractContextManager[Writer | None]:
    """What writes the checkpoints, in the process that has the run folder."""
    run = training.run
    if run is None:
        return nullcontext()
    about = {"configuration": training.config.model_dump(mode="json"), "split": training.split.hash}
    return Writer(run.checkpoints, about, run.path / runs.METRICS, training.notes.header(), run.require)


def _to_numbers(losses: Measured) -> dict[str, float]:
    """The losses as numbers, without those that are not finite."""
    values = {name: float(loss) for name, loss in losses.items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _stop_if_stuck(training: Training, rate: float) -> int:
    """The number of steps skipped so far; a UserError where so many in a row were that nothing is learnt any more."""
    skipped, in_a_row = map(int, training.state.skips.tolist())
    if in_a_row < min(training.config.train.most_skipped, training.iterations):  # a short run must learn something too
        return skipped
    table, samples = draw(training.plan, training.done - 1), training.samples
    names = [samples.name(item) for item in (*table.labelled.item.tolist(), *table.unlabelled.item.tolist())]
    raise UserError(
        f"The last {in_a_row} steps up to iteration {training.done} were not finite and were skipped ({skipped} in "
        f"all), at learning rate {rate:.1e}, the last of them with {words.listed(names, most=8)}. "
        "Look at these images, or start another run with a lower --optimiser.learning-rate (or, for weights that came "
        "with --model.weights, --optimiser.learning-rate-pretrained)."
    )
