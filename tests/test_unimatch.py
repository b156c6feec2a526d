"""UniMatch and UniMatch V2: losses and gradients against a literal transcription, and the features that they drop."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from algorithms import settings
from oneway import ops
from oneway.common.errors import UserError
from oneway.config import Model
from oneway.methods import METHODS
from oneway.models import build
from oneway.models.ema import init_ema
from oneway.models.encoder import Encoder
from oneway.models.features import feature_channels
from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
from oneway.ops.cutmix import box_mask
from oneway.tools.train import train
from small_runs import QUIET, small_streets
from test_consistency import frozen
from test_field_methods import (
    CLASSES,
    SIZE,
    N,
    assert_same_gradients,
    batch_for,
    draws,
    images,
    labelled,
    literal_cross_entropy,
    probabilities,
)


class TinyEncoder(Encoder):
    """Two feature maps, of 5 and 6 channels."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.channels = (5, 6)
        self.fine, self.coarse = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 6, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> list[Tensor]:
        fine = self.fine(x)
        return [fine, self.coarse(fine.tanh())]


class TinyDecoder(nn.Module):
    """Logits of features of both maps."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(11)
        self.head = nn.Conv2d(11, CLASSES, 1)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        joined = torch.cat((fine, F.interpolate(coarse, fine.shape[-2:])), dim=1)
        return 3 * self.head(self.norm(joined).tanh())


class Segmenter(nn.Module):
    """An encoder, and a decoder that receives its feature maps."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = TinyEncoder(), TinyDecoder()

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(*self.encoder(x))


def segmenter(seed: int) -> Segmenter:
    torch.manual_seed(seed)
    model = Segmenter().double()
    model(torch.rand(N, 3, *SIZE, dtype=torch.float64))
    return model


def literal_dropped(model: Segmenter, x: Tensor, factors: list[list[float]]) -> Tensor:
    """Probabilities of a network of which each image's channels are multiplied one by one."""
    maps, start = [], 0
    for each in model.encoder(x):
        scaled = [
            [row[start + k] * image[k] for k in range(len(image))] for row, image in zip(factors, each, strict=True)
        ]
        maps.append(torch.stack([torch.stack(image) for image in scaled]))
        start += each.shape[1]
    return F.interpolate(model.decoder(*maps), SIZE, mode="bilinear").softmax(dim=1)


def literal_views(x: Tensor, p: Tensor, threshold: float) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of both strong views: the images, the teacher's decisions, and where it is sure."""
    found = []
    for view in draws():
        inside = box_mask(view.small_boxes, SIZE)

        def exchanged(values: Tensor, inside: Tensor = inside) -> Tensor:
            partner = torch.cat((values[2:], values[:2]))
            mask = torch.cat((inside, inside)).view(N, *[1] * (values.ndim - 3), *SIZE)
            return torch.where(mask, partner, values)

        certainty, winner = p.max(dim=1)
        coloured = ops.jitter_colours(x, view.colours, 1.0)
        found.append((exchanged(coloured), exchanged(winner), exchanged(certainty) > threshold))
    return found


def test_unimatch():
    """L_s + α (¼ view 1 + ¼ view 2 + ½ dropped features), pixels that the teacher doubts counting as 0."""
    x, student = images(1), segmenter(0)
    reference, batch = deepcopy(student), batch_for("unimatch", x, channels=11)
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    p = probabilities(frozen(reference), x)
    certainty, winner = p.max(dim=1)
    assert 0.1 < (certainty > 0.5).double().mean() < 0.9
    for image, labels, sure in literal_views(x, p, 0.5):
        expected = expected + 0.8 / 4 * literal_cross_entropy(probabilities(reference, image), labels, sure)
    factors = [[0.0 if u < 0.5 else 2.0 for u in row] for row in batch.selection.channels.tolist()]
    features = literal_cross_entropy(literal_dropped(reference, x, factors), winner, certainty > 0.5)
    chosen = settings(alpha=0.8, confidence=0.5, loss="confident")
    losses = METHODS["unimatch"].generator()(Models((student,), (student,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.8 / 2 * features, [reference])
    torch.testing.assert_close(measured["features"], features.detach(), atol=1e-9, rtol=0)


def test_unimatch_v2():
    """L_s + α/2 (view 1 + view 2): what one view loses of the features, the other has twice; some images lose none."""
    x, student, teacher = images(1), segmenter(0), init_ema(segmenter(1))
    reference, batch = deepcopy(student), batch_for("unimatch-v2", x, channels=11)
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    whole = (batch.selection.whole < 0.5).tolist()
    assert 0 < sum(whole) < N
    factors = [
        [1.0 if kept else 0.0 if u < 0.5 else 2.0 for u in row]
        for row, kept in zip(batch.selection.channels.tolist(), whole, strict=True)
    ]
    others = [[2 - factor for factor in row] for row in factors]
    views = literal_views(x, probabilities(teacher, x), 0.5)
    for (image, labels, sure), kept in zip(views, (factors, others), strict=True):
        expected = expected + 0.8 / 2 * literal_cross_entropy(literal_dropped(reference, image, kept), labels, sure)
    chosen = settings(alpha=0.8, confidence=0.5, loss="confident")
    losses = METHODS["unimatch-v2"].generator()(Models((student,), (teacher,)), batch, chosen)
    assert_same_gradients(losses, [student], expected, [reference])


def test_mt_colour_cutmix_drop():
    """L_s, balanced, + α (KL of the strong view + ½ KL of dropped features), sure pixels first; one pass for all."""
    x, student, teacher = images(1), segmenter(0), init_ema(segmenter(1))
    reference, batch = deepcopy(student), batch_for("mt-colour-cutmix-drop", x, channels=11)
    x_l, y_l = labelled()
    view, p = draws()[0], probabilities(teacher, x)
    inside = box_mask(view.boxes, SIZE)
    inside = torch.cat((inside, inside))[:, None]

    def exchanged(values: Tensor) -> Tensor:
        return torch.where(inside, torch.cat((values[2:], values[:2])), values)

    whole = [[1.0] * 11] * (len(x_l) + N)
    lost = [[0.0 if u < 0.5 else 2.0 for u in row] for row in batch.selection.channels.tolist()]
    together = torch.cat((x_l, exchanged(ops.jitter_colours(x, view.colours, 1.0)), x))
    q_l, q_strong, q_lost = literal_dropped(reference, together, whole + lost).split((len(x_l), N, N))
    weights = torch.tensor([0.5, 1.5, 0.7, 2.0], dtype=torch.float64)
    known = y_l != 255
    chances = q_l.gather(1, torch.where(known, y_l, 0)[:, None])[:, 0]
    labels = (-chances.log() * weights[torch.where(known, y_l, 0)])[known].sum() / known.sum()

    def weighted_kl(target: Tensor, prediction: Tensor) -> Tensor:
        return (target.amax(dim=1) * (target * (target.log() - prediction.log())).sum(dim=1)).mean()

    expected = labels + 0.8 * weighted_kl(exchanged(p), q_strong) + 0.4 * weighted_kl(p, q_lost)
    chosen = settings(alpha=0.8, loss="weighted-kl", balance="frequency", class_weights=weights)
    losses = METHODS["mt-colour-cutmix-drop"].generator()(Models((student,), (teacher,)), batch, chosen)
    assert_same_gradients(losses, [student], expected, [reference])
    torch.testing.assert_close(student.decoder.norm.running_mean, reference.decoder.norm.running_mean)


def test_dropped_features_leave_no_trace():
    """The next pass through the network is whole again, also where one failed."""
    model, x = segmenter(0).eval(), images(1)
    before = model(x)
    models = Models((model,), (model,))
    assert not torch.equal(models.student(x, features=torch.zeros(N, 11)), before)
    with pytest.raises(RuntimeError):
        models.student(x, features=torch.zeros(N + 1, 11))
    assert torch.equal(model(x), before)
    assert torch.equal(models.student(x, features=torch.ones(N, 11)), before)


@pytest.mark.parametrize("name", ["swiftnet", "deeplabv2", "deeplabv3plus"])
def test_every_segmenter_has_features_to_drop(name):
    """A number for every channel, and all dropped changes the prediction."""
    model = build(Model(name=name, backbone="resnet18", width=0.125), classes=3, seed=0).eval()
    x, channels = torch.rand(2, 3, 64, 64), sum(feature_channels(model))
    models = Models((model,), (model,), NormPolicy("frozen"))
    assert torch.equal(models.student(x, features=torch.ones(2, channels)), model(x))
    assert not torch.allclose(models.student(x, features=torch.zeros(2, channels)), model(x))


def without_encoder(classes: int) -> nn.Module:
    return nn.Conv2d(3, classes, 1)


@pytest.mark.parametrize("method", ["unimatch", "unimatch-v2", "mt-colour-cutmix-drop"])
def test_a_network_without_an_encoder_is_refused_before_training(method, tmp_path):
    """With the way out."""
    config = small_streets(method=method, model={"factory": "test_unimatch:without_encoder", "width": 1.0})
    with pytest.raises(UserError, match=r"Conv2d has no `encoder`.*another --method"):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run").exists()
