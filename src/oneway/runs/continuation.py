"""Continuing a run as the experiment it was: what would change it is shown, and refused unless it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.common.run_files import CHANGES, METRICS
from oneway.common.words import listed
from oneway.config import Config
from oneway.data.dataset import Samples
from oneway.data.splits import Split, choose
from oneway.engine.state import TrainingState
from oneway.runs import atomic, checkpoint, lock
from oneway.runs.checkpoint.state import bytes_needed
from oneway.runs.folder import Run, open_run, read_json

MAY_CHANGE = ("data.path", "data.unlabelled", "data.cache", "data.refresh", "data.skip_unreadable", "train.device")
"""Where a run finds its data and computes may differ when it is continued; the data are known by their content."""


@dataclass(frozen=True)
class Continued:
    """A run that is continued."""

    run: Run
    before: Config  # its configuration until now
    allow_changes: bool
    changes: list[str] = field(default_factory=list)  # those that were found and allowed

    def accept(self, changes: Sequence[str]) -> None:
        """Refuses changes, unless they were asked for."""
        if changes and not self.allow_changes:
            raise UserError(
                f"{self.run.path}: continuing would change the run ({'; '.join(changes)}). "
                "Leave those settings and data as they were, start another run with --out, or insist with "
                "oneway train --resume --allow-changes."
            )
        self.changes.extend(change for change in changes if change not in self.changes)


def list_changes(run: Run) -> list[str]:
    """What has been changed since a run was started, in words."""
    file = run.path / CHANGES
    return [str(change) for change in read_json(file).get("changes", [])] if file.exists() else []


def load_ended(path: Path, config: Config) -> dict[str, Any] | None:
    """The summary of a run that has ended; None where there is something left to train.

    Raises:
        UserError: The run has ended with other settings.
    """
    run = open_run(path)
    summary = run.summary
    if summary is not None and (changes := _compare_settings(run.config.flat(), config.flat())):
        raise UserError(
            f"{path}: this run has ended, and continuing would change it ({'; '.join(changes)}). "
            f"Start another run with --out; with --model.weights {path} it begins where this one ended."
        )
    return summary


@contextmanager
def reopen(path: Path, config: Config, allow_changes: bool) -> Iterator[Continued]:
    """An existing run folder, locked within the block, to be continued with the settings of `config`."""
    before = open_run(path).config
    with lock.hold(path):
        continued = Continued(Run(path, config), before, allow_changes)
        for place in (continued.run.checkpoints, path / METRICS):
            if place.is_symlink():
                raise UserError(f"{place}: a link, which is not followed. Put what it leads to in its place.")
        continued.accept(_compare_settings(before.flat(), config.flat()))
        atomic.sweep(path)
        checkpoint.remove_incomplete(continued.run.checkpoints)
        yield continued


def keep_split(continued: Continued, samples: Samples, held_out: Samples) -> Split:
    """The split of a continued run: the one in its folder, even if a list of labels has changed since."""
    stored, now, before = continued.run.split, continued.run.config, continued.before
    continued.accept(list(_compare_data(stored, samples, held_out)))
    if stored.unlabelled == samples.names and (now.labels, now.seed) == (before.labels, before.seed):
        return replace(stored, content=samples.content, validation=held_out.content)
    return replace(choose(samples, now.labels, now.seed), validation=held_out.content)


def restore(
    continued: Continued, split: Split, state: TrainingState, iterations: int, say: Callable[[str], None]
) -> tuple[int, float]:
    """Puts the newest whole checkpoint into the state; returns its iteration and the seconds trained until then.

    What was logged after it is dropped, and the changes that were allowed are kept in the run folder.
    """
    run = continued.run
    found = checkpoint.restore_newest(run.checkpoints, state, say)
    done, seconds = (found.iteration, found.seconds) if found else (0, 0.0)
    if done > iterations:
        raise UserError(f"{run.path}: has done {done} iterations, more than the {iterations} asked for.")
    if found:
        # It may come from another run, or config.yaml may have been edited by hand.
        then = configuration.build(found.configuration, source=str(run.checkpoints))
        continued.accept(_compare_settings(then.flat(), run.config.flat()))
        if found.split != split.hash:
            continued.accept([f"split: {found.split[:8]} → {split.hash[:8]}"])
    checkpoint.require_room(run.checkpoints, bytes_needed(state))
    if continued.changes:
        now = [f"after {done} iterations, {change}" for change in continued.changes]
        run.write(CHANGES, {"changes": [*list_changes(run), *now]})
    if run.config != continued.before or split != run.split:
        run.write_settings(split)
    run.forget_metrics_after(done)
    checkpoint.prune(run.checkpoints)  # now that the newest is known to be whole
    return done, seconds


def _compare_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    changed = [key for key in before if before[key] != after[key] and key not in MAY_CHANGE]
    return [f"{key}: {before[key]} → {after[key]}" for key in changed]


def _compare_data(stored: Split, samples: Samples, held_out: Samples) -> Iterator[str]:
    was, now = set(stored.unlabelled), set(samples.names)
    for names, kind in ((was - now, "gone"), (now - was, "new")):
        if names:
            yield f"training images: {len(stored.unlabelled)} → {kind}: {listed(sorted(names))}"
    if stored.content != samples.content:
        yield f"content of the training data: {stored.content[:8]} → {samples.content[:8]}"
    if stored.validation != held_out.content:
        yield f"content of the validation data: {stored.validation[:8]} → {held_out.content[:8]}"
