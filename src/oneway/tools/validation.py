"""Validation of a run while it trains: on a GPU, images stay there, and the network is captured once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from oneway.common.words import first_line
from oneway.data.dataset import Bytes, Samples
from oneway.engine.ranks import ALONE, Ranks
from oneway.engine.replay import CapturedCall
from oneway.tools.evaluate import Indices, Scores, Tally, as_input, batches_of, evaluate, predict

MOST_BYTES = 2**28
"""Of validation images with their labels that stay on a GPU; more of them are brought there each time."""

Batch = tuple[Indices, Tensor, Tensor]
"""Which samples, inputs and labels."""


class Validator:
    """Scores the model of a run again and again, and says what it makes of single samples.

    Args:
        model: Whose tensors stay where they are.
        samples: Inputs with labels.
        classes: How many there are.
        say: Is told why it is slower than it could be.
        ranks: Several processes take turns at the batches.
        captured: On a GPU: keep the samples there, and replay the network where most of them have one size.
    """

    def __init__(
        self,
        model: nn.Module,
        samples: Samples,
        classes: int,
        say: Callable[[str], None],
        ranks: Ranks = ALONE,
        captured: bool = False,
    ) -> None:
        self.model, self.samples, self.classes, self.say, self.ranks = model, samples, classes, say, ranks
        self.device = next(model.parameters()).device
        sizes, counts = np.unique(samples.sizes, axis=0, return_counts=True)
        self.usual = tuple(sizes[counts.argmax()].tolist()) if len(samples) else (0, 0)
        self.captured = captured and ranks.alone and 2 * counts.max(initial=0) > len(samples)
        self.batches: list[Batch] | None = None
        self.call: CapturedCall | None = None
        self.looked_at: dict[int, Tensor] = {}

    def score(self, look_at: Collection[int] = ()) -> Scores:
        """The scores; samples that will be looked at need not be predicted again then."""
        self.looked_at = {}
        if self.captured:
            try:
                return self._replay(look_at)
            except RuntimeError as error:  # no memory to spare, or a network that cannot be captured
                self.say(f"Validation cannot be captured as a CUDA graph and runs slower: {first_line(error)}")
                self.captured, self.batches, self.call = False, None, None
                torch.cuda.empty_cache()
        return evaluate(self.model, self.samples, self.classes, ranks=self.ranks)

    def look(self, index: int) -> Bytes:
        """H×W classes that the model gives a sample."""
        found = self.looked_at.get(index)
        if found is None:
            found = self._classify(torch.from_numpy(self.samples.image(index))[None].to(self.device))[0][0]
        labels: Bytes = found.cpu().numpy()
        return labels

    def _replay(self, look_at: Collection[int]) -> Scores:
        tally = Tally(self.samples, self.classes, device=self.device)
        for items, inputs, labels in self._on_device():
            usual = tuple(self.samples.sizes[items[0]].tolist()) == self.usual
            if usual and self.call is None:
                self.call = CapturedCall(self._classify, inputs)  # the largest batch of its size comes first
            (predictions,) = self.call(inputs) if usual and self.call is not None else self._classify(inputs)
            tally.add(items, predictions, labels)
            self.looked_at |= {
                item: predictions[place].clone() for place, item in enumerate(items.tolist()) if item in look_at
            }
        return tally.scores()

    def _classify(self, inputs: Tensor) -> tuple[Tensor]:
        return (predict(self.model, as_input(inputs)).to(torch.uint8),)

    def _on_device(self) -> Iterator[Batch]:
        if self.batches is not None:
            yield from self.batches
            return
        kept: list[Batch] | None = [] if self.samples.pixels.nbytes + self.samples.labels.nbytes <= MOST_BYTES else None
        for items, inputs, labels in batches_of(self.samples):
            batch = items, inputs.to(self.device), labels.to(self.device)
            if kept is not None:
                kept.append(batch)
            yield batch
        self.batches = kept
