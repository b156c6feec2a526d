"""Opens a run to train: its data are read, its networks made, everything is checked; then it gets its folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oneway import __version__, data, runs
from oneway.common import words
from oneway.common.errors import UserError
from oneway.config import Config
from oneway.config.recipes.presets import PHOTOGRAPHS
from oneway.data.dataset import Dataset, Known, Samples
from oneway.data.splits import Split, choose, places
from oneway.draws import Plan
from oneway.engine import memory
from oneway.engine.balance import class_weights
from oneway.engine.capture import one_training_on_gpu
from oneway.engine.feed import Feed, feed
from oneway.engine.ranks import Ranks
from oneway.engine.refusals import refuse_indivisible
from oneway.engine.start import accelerated, batch_sizes, plan_of
from oneway.engine.state import TrainingState
from oneway.engine.warm import prewarm_gpu
from oneway.runs import atomic, continuation
from oneway.runs.checkpoint.state import bytes_needed, tensors_of
from oneway.runs.checkpoint.state import restore as restore_tensors
from oneway.runs.checkpoint.writer import Writer
from oneway.runs.continuation import Continued, Notes
from oneway.tools.crops import fit_crops
from oneway.tools.evaluate import Scores
from oneway.tools.networks import Origin, compare_teacher, initial_state, locate_origin, refuse_unsuited
from oneway.tools.snapshots import Snapshots
from oneway.tools.trained_on import about_beginning, taught_before
from oneway.tools.validation import Validator

QUICK_ON_A_CPU = 1e9
"""Pixels to train on, at full width, that take about an hour."""


@dataclass
class Training:
    """A run that is ready to train, or trains."""

    config: Config
    out: Path
    ranks: Ranks
    say: Callable[[str], None]
    device: torch.device
    dataset: Dataset
    samples: Samples
    held_out: Samples
    split: Split
    state: TrainingState
    validator: Validator
    plan: Plan
    fed: Feed
    iterations: int
    notes: Notes
    """What checkpoints keep beside the tensors."""

    reviewed: tuple[str, ...] = ()
    """What was said about the images."""

    run: runs.Run | None = None
    """The folder, in the first process, or the only one: what it finds there, it tells the others."""

    done: int = 0
    """Iterations done so far."""

    seconds: float = 0.0
    """Seconds that iterations took before the run was opened."""

    scores: Scores | None = None
    """The scores of the last validation since the run was opened."""

    checkpoints: Writer | None = None
    """The writer of checkpoints, in the process that has the folder."""

    snapshots: Snapshots | None = None
    """Pictures for those who watch."""

    hear_loggers: Callable[[], None] = lambda: None
    """Prints messages of its loggers."""

    started: float = 0.0
    """When training went on, by `time.monotonic`."""

    @property
    def elapsed(self) -> float:
        """Seconds that all iterations have taken so far."""
        return self.seconds + time.monotonic() - self.started

    @property
    def validate_every(self) -> int:
        return self.config.train.validate_every or math.ceil(self.iterations / 10)

    @property
    def checkpoint_every(self) -> int:
        return self.config.train.checkpoint_every or self.validate_every

    def is_due(self, every: int) -> bool:
        """Whether what happens every so many iterations, and after the last one, happens now."""
        return self.done % every == 0 or self.done == self.iterations


@dataclass(frozen=True)
class Turn:
    """Which of several trainings in a row one is."""

    title: str = ""
    """Stands before the title of its progress."""

    said: set[str] | None = None
    """What those before it have said of their data, which is not said again."""

    def say(self, console: Console, text: str) -> None:
        """Print what no training before it has said."""
        if self.said is None or text not in self.said:
            words.say(console, text)
        if self.said is not None:
            self.said.add(text)


ONLY_ONE = Turn()


def require_agreement(config: Config, resume: bool, ranks: Ranks) -> None:
    """Refuse processes that were started otherwise than the first, or a batch that they cannot share."""
    refuse_indivisible(config, ranks.world_size)
    ranks.require_equal({"oneway": __version__, "PyTorch": torch.__version__, "--resume": resume} | config.flat())


def find_ended(config: Config, out: Path, ranks: Ranks, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The summary of a run that has ended, which is said; None where there is something left to train."""
    ended = ranks.broadcast(partial(continuation.load_ended, out, config))
    if ended is not None:
        of = ranks.broadcast(lambda: "" if config.data.path is None else f" of {runs.open_run(out).config.data.path}")
        say(f"{out}: this run{of} has ended; nothing to do.")
        if note := ranks.broadcast(partial(continuation.changed_code, out, config)):
            say(f"Note: {note}")
    return ended


@contextmanager
def open_training(
    config: Config,
    out: Path,
    resume: bool,
    allow_changes: bool,
    ranks: Ranks,
    console: Console,
    say: Callable[[str], None],
) -> Iterator[Training]:
    """A new run in `out`, or the one there after its last checkpoint; the block has its folder and its images.

    Nothing is written before everything has been checked.
    """

    def note(*remarks: str) -> None:
        for remark in filter(None, remarks):
            say(f"Note: {remark}")

    device = runs.choose_device(ranks.device(config.train.device))
    with ExitStack() as resources:
        resources.enter_context(one_training_on_gpu(device))
        if ranks.alone:
            resources.enter_context(prewarm_gpu(device, config))
        continued = None
        if resume and ranks.is_first:
            continued = resources.enter_context(continuation.reopen(out, config, allow_changes))
        elif ranks.is_first:
            runs.refuse_occupied(out)
        notes, known = ranks.broadcast(lambda: (continued.notes, continued.known) if continued else (Notes(), Known()))
        with ranks.local_rank_zero_first():
            # A folder that is mistyped is said before weights are fetched, and those before minutes of decoding.
            # A run that reads images smaller says how much: one that goes on with `auto` has read them as they are.
            fixed = {"reduction": 1} if resume and config.data.reduction == "auto" else {}
            dataset = data.load(config.data.model_copy(update=fixed), console, known=known)
            refuse_unsuited(config, len(dataset.classes))
            origin = locate_origin(config, notes.filled)
        if config.data.reduction == "auto" and dataset.reduction > 1:
            config = config.changed(data={"reduction": dataset.reduction})
        if continued is not None and origin.teacher_digest is not None:
            continuation.keep_teacher(continued, notes.teacher, origin.teacher_digest)

        samples, held_out = _read_images(dataset, origin, ranks)
        config, fitted = fit_crops(config, samples.sizes[: samples.labelled])
        reviewed = tuple(dataset.review())
        note(*reviewed, fitted)
        split = ranks.broadcast(partial(_find_split, config, continued, dataset, samples, held_out))
        note(about_beginning(out, split, dataset, held_out.names), _about_labels(config, split, dataset))
        if origin.teacher is not None:
            note(compare_teacher(origin.teacher, dataset, config))
        labelled, unlabelled = places(samples, split)
        balanced = config.train.balance == "frequency"
        weights = class_weights(samples, labelled, len(dataset.classes)) if balanced else None
        state, student = initial_state(config, len(dataset.classes), device, origin, weights)
        note(*student.remarks)
        memory.require(state.student, bytes_needed(state), config, device)

        iterations = config.train.total_iterations(len(split.labelled))
        plan = plan_of(config, labelled, unlabelled, channels=samples.pixels.shape[1], network=state.student)
        fed = feed(samples, plan, device, config.jitter, ranks.share)
        resources.callback(fed.close)
        _describe_images(config, samples, fed, say)
        if device.type == "cpu":
            note(slow_on_cpu(config, iterations))
        captured = accelerated(config, device) and device.type == "cuda" and config.model.factory is None
        validator = Validator(state.kept, held_out, len(dataset.classes), say, ranks, captured)
        training = Training(
            config, out, ranks, say, device, dataset, samples, held_out, split, state, validator, plan, fed, iterations,
            Notes(student.filled, origin.teacher_digest), reviewed,
        )  # fmt: skip
        _give_folder(training, continued, resources)
        yield training


def _read_images(dataset: Dataset, origin: Origin, ranks: Ranks) -> tuple[Samples, Samples]:
    """The images, the same in all processes: those that train, and those that validate."""
    with ranks.local_rank_zero_first():
        samples, held_out = dataset.read("train"), dataset.read("val")
    facts = {"training images": samples.content, "validation images": held_out.content, "classes": dataset.classes}
    ranks.require_equal(facts | {"teacher": origin.teacher_digest, "pool": samples.pool_record})
    return samples, held_out


def _find_split(
    config: Config, continued: Continued | None, dataset: Dataset, samples: Samples, held_out: Samples
) -> Split:
    if continued is None:
        chosen = choose(samples, config.labels, config.seed, held_out.names)
        split = replace(chosen, validation=held_out.content, began_with=taught_before(config))
    else:
        split = continuation.keep_split(continued, samples, held_out)
    return split.know(dataset.digests("train"), held_out.names)


def _about_labels(config: Config, split: Split, dataset: Dataset) -> str:
    """A note on classes that no labelled image shows, though others would; a UserError where they show none at all."""
    if not (by_image := dataset.shown()):
        return ""
    shown, known = (set[int]().union(*map(by_image.__getitem__, names)) for names in (split.labelled, by_image))
    others = "Choose others with another --seed, or with --labels and a file that lists images."
    if not shown:
        raise UserError(
            f"--labels {config.labels}: all pixels of {words.listed(split.labelled)} are ignored, and nothing would "
            f"teach the classes. {others}"
        )
    missing = words.listed([dataset.classes[label] for label in sorted(known - shown)], joint="or")
    count = words.counted(len(split.labelled), "labelled image")
    return f"None of the {count} chosen shows {missing}, which others do. {others}" if missing else ""


def _describe_images(config: Config, samples: Samples, fed: Feed, say: Callable[[str], None]) -> None:
    if config.data.task == "segmentation":
        megabytes = (samples.pixels.nbytes + samples.labels.nbytes) / 1e6
        further = "" if samples.pool is None else f", and {len(samples.pool):,} of a pool"
        say(f"{words.counted(len(samples), 'training image')}, {megabytes:,.0f} MB{further}, {fed.place}.")


def _give_folder(training: Training, continued: Continued | None, resources: ExitStack) -> None:
    """Give the run its folder, or its last checkpoint; the other processes begin with the tensors of the first."""
    ranks, state, out, say = training.ranks, training.state, training.out, training.say
    if continued is not None:
        training.run = continued.run
        training.done, training.seconds = continuation.restore(
            continued, training.split, state, training.iterations, training.checkpoint_every, say
        )
        say(f"{out}: continues after {training.done} of {training.iterations} iterations{ranks.in_words}.")
    elif ranks.is_first:
        training.run = resources.enter_context(
            runs.start_run(out, training.config, training.split, bytes_needed(state))
        )
        if ranks.world_size > 1:
            say(f"{out}: starts{ranks.in_words}.")
    if training.run is not None and not atomic.sync_folder(out):
        say(f"Note: the file system of {out} cannot sync folders: a power cut there may cost the last checkpoints.")
    training.done, training.seconds = ranks.broadcast(lambda: (training.done, training.seconds))
    if not ranks.alone:
        found = ranks.broadcast_tensors(lambda: tensors_of(state))
        if not ranks.is_first:
            restore_tensors(state, found)


def slow_on_cpu(config: Config, iterations: int) -> str:
    """A note where segmentation would take hours on a CPU, with what to do; else nothing."""
    height, width = config.jitter.crop or (0, 0)
    pixels = iterations * sum(batch_sizes(config)) * height * width
    if config.data.task != "segmentation" or pixels * config.model.width**2 <= QUICK_ON_A_CPU:
        return ""
    if torch.cuda.is_available():
        return f"with --train.device {config.train.device} this will take hours. Leave it out to use the GPU."
    by_hand = "--model.width 0.25 --model.weights none --jitter.crop 160 160 --train.iterations 300"
    quick = "--preset cpu" if config.recipe in PHOTOGRAPHS else by_hand
    return f"there is no GPU here, and this will take hours. For a first result in minutes, add {quick}."
