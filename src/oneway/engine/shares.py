"""Refuses batches that cannot be divided among processes so that they learn what a single process would."""

from __future__ import annotations

from oneway.common.errors import UserError
from oneway.config import Config
from oneway.engine.start import batch_sizes
from oneway.methods import METHODS


def refuse_indivisible(config: Config, processes: int) -> None:
    """Refuse batches that do not divide among the processes, and losses that need the whole batch in one process."""
    if processes == 1:
        return
    method, (labelled, unlabelled) = METHODS[config.method], batch_sizes(config)
    # Images that are mixed with one another go to the same process.
    together = 4 if method.mixes_labelled else 2 if method.augment and not method.augment_all else 1
    for flag, size, unit in (
        ("--train.batch-labelled", labelled, together),
        ("--train.batch-unlabelled", unlabelled, 2 if method.mixes else 1),
    ):
        if size % (unit * processes):
            kept = f", which keeps {'pairs' if unit == 2 else 'fours'} of images together" if unit > 1 else ""
            raise UserError(
                f"{flag} {size} does not divide among {processes} processes with method {config.method}{kept}. It is "
                f"the batch of all of them: use a multiple of {unit * processes}, or another number of processes."
            )
    if method.injects and labelled != unlabelled:
        raise UserError(
            f"Method {config.method} pastes labelled images into unlabelled ones in turn: with {processes} processes, "
            f"--train.batch-labelled {labelled} and --train.batch-unlabelled {unlabelled} have to be the same."
        )
    if config.train.balance == "ohem":
        raise UserError(
            f"--train.balance ohem looks for the hardest pixels of a whole batch, of which each of {processes} "
            "processes has a part. Use frequency or dice, or one process."
        )
