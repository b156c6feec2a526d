"""UniMatch V2 (Yang et al., 2025): a mean teacher, and two strong views with complementary feature channels.

Shapes: N images; K channels of all feature maps that the decoder receives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oneway.methods import supervised
from oneway.methods.interface import Batch, Loss, Losses, Settings
from oneway.methods.unimatch import channel_dropout, strong_view
from oneway.models.roles import Models

if TYPE_CHECKING:
    from oneway.draws import ClassAndChannelDraws


def losses(models: Models, batch: Batch, settings: Settings) -> Losses:
    """L_s, then α times the mean of two strong views' losses."""
    yield from supervised.losses(models, batch, settings)
    assert batch.selection is not None
    x_w = batch.unlabelled()
    p_w = models.teacher(x_w)
    for view, features in enumerate(complementary_dropout(batch.selection)):
        yield Loss("consistency", strong_view(models, batch, settings, x_w, p_w, view, features), 0.5 * settings.alpha)


def complementary_dropout(selection: ClassAndChannelDraws) -> tuple[Tensor, Tensor]:
    """N×K factors for the two views: 2 and 0, or 0 and 2; 1 and 1 for half of the images."""
    first = torch.where(selection.whole[:, None] < 0.5, 1, channel_dropout(selection.channels))
    return first, 2 - first
