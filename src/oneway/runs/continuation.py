"""Resuming a run: changes of settings, data or teacher are found, and refused unless `--allow-changes` is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.common.run_files import CHANGES, ENVIRONMENT, METRICS
from oneway.common.words import listed
from oneway.config import Config
from oneway.data.dataset import Known, PoolRecord, Samples
from oneway.data.splits import Split, choose
from oneway.engine.state import TrainingState
from oneway.runs import atomic, checkpoint, lock, records
from oneway.runs.checkpoint.state import bytes_needed
from oneway.runs.environment import add_stretch, begin_stretches, environment_of
from oneway.runs.folder import Run, open_run, refuse_links
from oneway.runs.kept_settings import compare_settings
from oneway.runs.own_code import own_code
from oneway.runs.reading import CannotRead, is_there


class Notes(NamedTuple):
    """Metadata of a checkpoint, beside its tensors."""

    filled: tuple[str, ...] = ()
    """Names of the parameters that `model.weights` filled: they have a learning rate of their own."""

    teacher: str | None = None
    """A digest of the model in `teacher`, which checkpoints do not contain."""

    def header(self) -> dict[str, Any]:
        """As checkpoints have them."""
        return {key: value for key, value in (("teacher", self.teacher), ("pretrained", list(self.filled))) if value}


@dataclass(frozen=True)
class Continued:
    """A run that is being resumed."""

    run: Run
    before: Config  # its configuration until now
    allow_changes: bool
    changes: list[str] = field(default_factory=list)  # those that were found and allowed

    @property
    def notes(self) -> Notes:
        """The metadata of the newest checkpoint; empty where there is none yet."""
        found = checkpoint.read_notes(self.run.checkpoints) or {}
        names, teacher = found.get("pretrained"), found.get("teacher")
        filled = tuple(map(str, names)) if isinstance(names, list) else ()
        return Notes(filled, teacher if isinstance(teacher, str) else None)

    @property
    def known(self) -> Known:
        """The images that were held out: they are again, as long as the settings that draw them are the same."""
        before, now = self.before.data, self.run.config.data
        same = (before.holdout, before.seed) == (now.holdout, now.seed)
        return Known(self.run.split.validating if same else ())

    def require_allowed(self, changes: Sequence[str]) -> None:
        """Refuse changes unless `allow_changes` is set; record the allowed ones."""
        if changes and not self.allow_changes:
            raise UserError(
                f"{self.run.path}: continuing would change the run ({'; '.join(changes)}). "
                "Leave those settings and data as they were, start another run with --out, or insist with "
                "oneway train --resume --allow-changes."
            )
        self.changes.extend(change for change in changes if change not in self.changes)


def load_ended(path: Path, config: Config) -> dict[str, Any] | None:
    """The summary of a run that has ended; None where there is something left to train.

    Raises:
        UserError: The run has ended with other settings.
    """
    run = open_run(path)
    summary = run.summary
    if summary is not None and (changes := compare_settings(run.config.flat(), config.flat())):
        raise UserError(
            f"{path}: this run has ended, and continuing would change it ({'; '.join(changes)}). "
            f"Start another run with --out; with --model.weights {path} it begins where this one ended."
        )
    return summary


def changed_code(path: Path, config: Config) -> str:
    """A note on a run that has ended whose method or network was written otherwise than the one here; or nothing."""
    now, changed = own_code(config), list[str]()
    if now:
        with suppress(UserError):  # its environment.json is gone or damaged, and says nothing
            then = open_run(path).environment.get("code", {})
            changed = [name for name in now if then.get(name, now[name]) != now[name]]
    if not changed:
        return ""
    return (
        f"{path}: {listed(changed)} was another when this run ended, and its numbers are of that. If what has changed "
        "matters to them, train again with another --out."
    )


@contextmanager
def reopen(path: Path, config: Config, allow_changes: bool) -> Iterator[Continued]:
    """An existing run folder, locked within the block, to be continued with the settings of `config`."""
    before = open_run(path).config
    with lock.hold(path) as held:
        continued = Continued(Run(path, config, held), before, allow_changes)
        refuse_links(path)
        continued.require_allowed(compare_settings(before.flat(), config.flat()))
        yield continued


def keep_split(continued: Continued, samples: Samples, held_out: Samples) -> Split:
    """The split of a resumed run: the stored one, even if a list of labels has changed since."""
    stored, now, before = continued.run.split, continued.run.config, continued.before
    continued.require_allowed(list(_compare_data(stored, samples, held_out)))
    same_images = stored.unlabelled == samples.names and stored.pool == samples.pool_record
    if same_images and (now.labels, now.seed) == (before.labels, before.seed):
        return replace(stored, content=samples.content, validation=held_out.content)
    # What the labels of before have taught stays in the weights, whichever images have labels or validate now.
    begun = checkpoint.read_notes(continued.run.checkpoints) is not None
    began_with = stored.taught if begun else stored.began_with
    return replace(choose(samples, now.labels, now.seed), validation=held_out.content, began_with=began_with)


def _compare_data(stored: Split, samples: Samples, held_out: Samples) -> Iterator[str]:
    was, now = set(stored.unlabelled), set(samples.names)
    for names, kind in ((was - now, "gone"), (now - was, "new")):
        if names:
            yield f"training images: {len(stored.unlabelled)} → {kind}: {listed(sorted(names))}"
    if stored.pool != samples.pool_record:
        yield f"pool of unlabelled images: {_describe_pool(stored.pool)} → {_describe_pool(samples.pool_record)}"
    if stored.content != samples.content:
        yield f"content of the training data, as they are read: {stored.content[:8]} → {samples.content[:8]}"
    if stored.validation != held_out.content:
        yield f"content of the validation data, as they are read: {stored.validation[:8]} → {held_out.content[:8]}"


def _describe_pool(pool: PoolRecord | None) -> str:
    return "none" if pool is None else f"{pool.images} with digest {pool.digest[:8]}"


def keep_teacher(continued: Continued, then: str | None, now: str) -> None:
    """Refuse another teacher than the run had; `then` and `now` are digests, and the former may be unknown."""
    before, after = continued.before.teacher, continued.run.config.teacher
    if then is None and before != after:
        continued.require_allowed([f"teacher: {before} → {after}"])
    elif then is not None and then != now:
        continued.require_allowed([f"teacher {after}: its content is {then[:8]} → {now[:8]}"])


def restore(
    continued: Continued,
    split: Split,
    state: TrainingState,
    iterations: int,
    checkpoint_every: int,
    say: Callable[[str], None],
) -> tuple[int, float]:
    """Restore the newest intact checkpoint; returns its iteration and the seconds trained until then.

    Later lines of the log are dropped; changes of settings are recorded in the run folder. Nothing is removed before
    everything needed has been read.

    Raises:
        UserError: It cannot be continued: among other reasons, since checkpoints are missing that must have been there.
    """
    run = continued.run
    found = checkpoint.restore_newest(run.checkpoints, state, say)
    done, seconds = (found.iteration, found.seconds) if found else (0, 0.0)
    _refuse_lost(run, done if found else None, checkpoint_every)
    logged = run.metrics_until(done)
    record, differences = _update_environment(run, done, say)
    if done > iterations:
        raise UserError(f"{run.path}: has done {done} iterations, more than the {iterations} asked for.")
    if found:
        # It may come from another run, or config.yaml may have been edited by hand.
        then = configuration.build(found.configuration, source=str(run.checkpoints))
        continued.require_allowed(compare_settings(then.flat(), run.config.flat()))
        if found.split != split.hash:
            continued.require_allowed([f"split: {found.split[:8]} → {split.hash[:8]}"])
    run.require()
    atomic.sweep(run.path)
    checkpoint.remove_incomplete(run.checkpoints)
    checkpoint.require_room(run.checkpoints, bytes_needed(state))
    _record(continued, split, done)
    if record is not None:
        run.write(ENVIRONMENT, record)
    run.write_lines(METRICS, logged)
    checkpoint.prune(run.checkpoints)  # now that the newest is known to be whole
    for note in filter(None, (_about_hole(continued, logged, done), _about_environment(differences))):
        say(note)
    return done, seconds


def _record(continued: Continued, split: Split, done: int) -> None:
    """Write the settings and the split of a run as they are from now on, and what has changed."""
    run = continued.run
    if continued.changes:
        now = [f"after {done} iterations, {change}" for change in continued.changes]
        run.write(CHANGES, {"changes": [*run.changes, *now]})
    if run.config != continued.before or split != run.split:
        run.write_settings(split)


def _about_hole(continued: Continued, logged: Sequence[Mapping[str, Any]], done: int) -> str:
    """A note on iterations that the log lacks, though the checkpoint has done them; or nothing."""
    last, every = max((line["iteration"] for line in logged), default=0), continued.before.train.log_every
    if done // every <= last // every:
        return ""
    return (
        f"Note: {continued.run.path / METRICS} ends at iteration {last}, and the checkpoint is of iteration {done}, as "
        "where a folder is copied while it trains. Curves have no values in between; the model is not affected."
    )


def _about_environment(differences: Sequence[str]) -> str:
    """A note on another environment; or nothing."""
    if not differences:
        return ""
    return (
        f"Note: not as in the iterations before: {'; '.join(differences)}. The run continues, and its numbers may "
        "differ from those of an uninterrupted one."
    )


def _update_environment(run: Run, done: int, say: Callable[[str], None]) -> tuple[dict[str, Any] | None, list[str]]:
    """The new content of `environment.json`, None to leave it as it is; and what has changed, in words."""
    now = environment_of(run.config)
    if not is_there(run.path / ENVIRONMENT):
        return begin_stretches(now, done), []
    try:
        return add_stretch(run.environment, now, done)
    except CannotRead:
        raise
    except UserError as error:
        say(f"Note: {error} It stays as it is, and does not say where the run is continued.")
        return None, []


def _refuse_lost(run: Run, newest: int | None, every: int) -> None:
    """Refuse to resume where checkpoints are missing: the log has iterations whose checkpoints must have been written.

    Training waits for the first checkpoint and writes later ones in the background. So two may be missing, one more may
    be damaged, and none is written during the skipped steps that end a run.
    """
    logged = records.read_log(run.path / METRICS)
    lines = [line for line in logged if not isinstance(line, str)]
    last = max((line["iteration"] for line in lines), default=0)
    if newest is None:
        lost = last > every or len(lines) < len(logged)
    else:
        lost = last > newest + 3 * every + 2 * run.config.train.most_skipped and not lines[-1].get("skipped")
    if lost:
        what = "there is no checkpoint" if newest is None else f"the newest checkpoint is of iteration {newest}"
        raise UserError(
            f"{run.checkpoints}: {what}, and {METRICS} goes to iteration {last}: checkpoints are missing. Nothing has "
            f"been changed. Bring them back, or start another run with --out; to go on without them in this folder, "
            f"move {run.path / METRICS} elsewhere."
        )
