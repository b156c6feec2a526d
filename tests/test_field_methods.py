"""The methods of the field: each loss and gradient against a literal transcription in float64, and runs that resume."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from algorithms import settings
from oneway import ops
from oneway.common.errors import UserError
from oneway.common.streams import stream
from oneway.config import Model, Perturb
from oneway.config.recipes import configured
from oneway.draws import Lots, PerturbationDraw, draw_perturbation
from oneway.engine.step import Measured, add_gradients
from oneway.methods import METHODS
from oneway.methods.interface import Batch
from oneway.models import build
from oneway.models.average import average_of
from oneway.models.encoder import Encoder
from oneway.models.features import feature_channels
from oneway.models.norm import NormPolicy
from oneway.models.roles import Models
from oneway.ops.exchange import box_mask
from oneway.perturb import perturbation
from oneway.tools.train import train
from small_runs import small_streets
from test_consistency import Tiny, frozen

SIZE = (20, 28)
CLASSES = 4
N = 4
QUIET = Console(quiet=True)


def network(seed: int) -> nn.Module:
    """A network in double precision with statistics that are not the initial ones."""
    torch.manual_seed(seed)
    model = Tiny().double()
    model(torch.rand(N, 3, *SIZE, dtype=torch.float64))
    return model


def images(seed: int) -> Tensor:
    return torch.rand(N, 3, *SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def lots(channels: int = 0) -> Lots:
    random = stream(3, "test")
    return Lots(*(torch.from_numpy(random.random(shape)) for shape in ((N, 256), (N, channels), (N,))))


def labelled() -> tuple[Tensor, Tensor]:
    return images(8), torch.randint(0, CLASSES, (N, *SIZE), generator=torch.Generator().manual_seed(9))


def draws() -> list[PerturbationDraw]:
    return [draw_perturbation(seed, 0, N) for seed in (0, 1)]


def batch_for(method: str, x: Tensor, channels: int = 0) -> Batch:
    views, names = draws(), METHODS[method].perturb
    changes = [perturbation(names, view, x, Perturb()) for view in views]
    return Batch(labelled, lambda: x, lambda x, view: changes[view], None, lots(channels))


def probabilities(model: nn.Module, x: Tensor) -> Tensor:
    return F.interpolate(model(x), SIZE, mode="bilinear").softmax(dim=1)


def literal_cross_entropy(p: Tensor, labels: Tensor, counted: Tensor | None = None) -> Tensor:
    """−log p[label] pixel by pixel, 0 where it does not count; the mean over all pixels."""
    counted = torch.ones_like(labels, dtype=torch.bool) if counted is None else counted
    total = sum(
        -p[n, labels[n, i, j], i, j].log()
        for n, i, j in counted.nonzero().tolist()  # one pixel after another
    )
    return total / labels.numel()


def assert_same_gradients(losses, students, expected, references) -> Measured:
    """All losses of a method together: the sum of L_s and the rest, weighted, and its gradient."""
    parameters = [parameter for student in students for parameter in student.parameters()]
    measured = add_gradients(losses, parameters)
    expected.backward()
    wanted = [parameter for reference in references for parameter in reference.parameters()]
    for mine, theirs in zip(parameters, wanted, strict=True):
        assert mine.grad is not None
        assert mine.grad.abs().max() > 1e-6
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-9, rtol=0)
    return measured


def test_half_of_the_classes_are_chosen_by_lot():
    """⌊n/2⌋ of the n classes that are there, those with the smallest numbers; each pixel with its class."""
    labels = torch.tensor([[[0, 0, 2, 5]], [[1, 1, 1, 1]], [[3, 4, 0, 3]], [[6, 5, 4, 3]]])
    numbers = torch.tensor(
        [
            [0.5, 0.0, 0.4, 0.9, 0.8, 0.6, 0.1],
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
            [0.9, 0.9, 0.9, 0.2, 0.3, 0.1, 0.1],
            [0.0, 0.0, 0.0, 0.9, 0.1, 0.7, 0.2],
        ]
    )
    chosen = ops.half_of_classes(labels, numbers, classes=7)
    assert chosen.int().tolist() == [[[0, 0, 1, 0]], [[0, 0, 0, 0]], [[1, 0, 0, 1]], [[1, 0, 1, 0]]]


def test_every_half_is_equally_probable():
    """Of 4 classes, each of the 6 pairs in a sixth of 6,000 draws."""
    labels = torch.arange(4).view(1, 1, 4).expand(6000, 1, 4)
    numbers = torch.from_numpy(stream(0, "test").random((6000, 256)))
    chosen = ops.half_of_classes(labels, numbers, classes=4).flatten(1).int()
    counts = torch.unique(chosen, dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert (counts - 1000).abs().max() < 120


def test_classmix():
    """λ H(Y, h(X)), images and labels mixed one pixel at a time; colours of the mixed image change."""
    x, student, teacher = images(1), network(0), average_of(network(1))
    chosen = settings(alpha=0.7, confidence=0.5)
    reference, batch = deepcopy(student), batch_for("classmix", x)

    p = probabilities(frozen(teacher), x)
    certainty, winner = p.max(dim=1)
    mixed, labels, sure = x.clone(), winner.clone(), 0
    for n in range(N):
        present = sorted(set(winner[n].flatten().tolist()), key=lambda c: float(batch.lots.classes[n, c]))
        assert len(present) > 1
        pasted = present[: len(present) // 2]
        other = (n + N // 2) % N
        for i in range(SIZE[0]):
            for j in range(SIZE[1]):
                source = n if winner[n, i, j] in pasted else other
                mixed[n, :, i, j], labels[n, i, j] = x[source, :, i, j], winner[source, i, j]
                sure += int(certainty[source, i, j] > 0.5)
    assert 0.1 < sure / winner.numel() < 0.9
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    coloured = ops.jitter_colours(mixed, draws()[0].colours, 1.0)
    consistency = sure / winner.numel() * literal_cross_entropy(probabilities(reference, coloured), labels)
    losses = METHODS["classmix"].generator()(Models((student,), (teacher,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.7 * consistency, [reference])
    torch.testing.assert_close(measured["consistency"], consistency.detach(), atol=1e-9, rtol=0)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_cps():
    """Each student against the other's hard decisions, with rectangles exchanged pixel by pixel."""
    x, students = images(1), [network(0), network(1)]
    references, batch = deepcopy(students), batch_for("cps", x)
    inside = box_mask(draws()[0].boxes, SIZE)

    def exchanged(values: Tensor) -> Tensor:
        result = values.clone()
        for pair, i, j in inside.nonzero().tolist():
            result[pair, ..., i, j], result[pair + 2, ..., i, j] = values[pair + 2, ..., i, j], values[pair, ..., i, j]
        return result

    x_l, y_l = labelled()
    supervised = [literal_cross_entropy(probabilities(reference, x_l), y_l) for reference in references]
    with torch.no_grad():
        decisions = [exchanged(probabilities(frozen(reference), x).argmax(dim=1)) for reference in references]
    crossed = [
        literal_cross_entropy(probabilities(references[0], exchanged(x)), decisions[1]),
        literal_cross_entropy(probabilities(references[1], exchanged(x)), decisions[0]),
    ]
    models = Models(tuple(students), tuple(students))
    losses = METHODS["cps"].generator()(models, batch, settings(alpha=1.5, confidence=0.0, loss="confident"))
    measured = assert_same_gradients(losses, students, sum(supervised) + 1.5 * sum(crossed), references)
    torch.testing.assert_close(measured["consistency"], sum(crossed).detach(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", ["fixmatch", "augseg"])
def test_confident_labels(method):
    """H(y, h(T(x))) where the teacher is sure of y; other pixels count as 0, in a mean over all of them."""
    x, student, teacher = images(1), network(0), average_of(network(1))
    reference, batch = deepcopy(student), batch_for(method, x)
    certainty, winner = probabilities(frozen(teacher), x).max(dim=1)
    view = draws()[0]
    changed = (
        ops.jitter_colours(x, view.colours, 1.0) if method == "fixmatch" else ops.vary_intensity(x, view.intensities)
    )
    mixed, labels, sure = changed.clone(), winner.clone(), certainty > 0.5
    for pair, i, j in box_mask(view.boxes, SIZE).nonzero().tolist():
        for here, there in ((pair, pair + 2), (pair + 2, pair)):
            mixed[here, :, i, j], labels[here, i, j] = changed[there, :, i, j], winner[there, i, j]
            sure[here, i, j] = certainty[there, i, j] > 0.5
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    consistency = literal_cross_entropy(probabilities(reference, mixed), labels, sure)
    chosen = settings(alpha=0.7, confidence=0.5, loss=METHODS[method].loss)
    losses = METHODS[method].generator()(Models((student,), (teacher,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.7 * consistency, [reference])
    torch.testing.assert_close(measured["consistency"], consistency.detach(), atol=1e-9, rtol=0)


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
    maps = [
        torch.stack([torch.stack([factors[n][start + k] * each[n, k] for k in range(each.shape[1])]) for n in range(N)])
        for each, start in zip(model.encoder(x), (0, 5), strict=True)
    ]
    return F.interpolate(model.decoder(*maps), SIZE, mode="bilinear").softmax(dim=1)


def literal_views(x: Tensor, p: Tensor, threshold: float) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of both strong views: the images, the teacher's decisions, and where it is sure."""
    found = []
    for view in draws():
        inside = box_mask(view.boxes, SIZE)

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
    factors = [[0.0 if lot < 0.5 else 2.0 for lot in row] for row in batch.lots.channels.tolist()]
    features = literal_cross_entropy(literal_dropped(reference, x, factors), winner, certainty > 0.5)
    chosen = settings(alpha=0.8, confidence=0.5, loss="confident")
    losses = METHODS["unimatch"].generator()(Models((student,), (student,)), batch, chosen)
    measured = assert_same_gradients(losses, [student], expected + 0.8 / 2 * features, [reference])
    torch.testing.assert_close(measured["features"], features.detach(), atol=1e-9, rtol=0)


def test_unimatch_v2():
    """L_s + α/2 (view 1 + view 2): what one view loses of the features, the other has twice; some images lose none."""
    x, student, teacher = images(1), segmenter(0), average_of(segmenter(1))
    reference, batch = deepcopy(student), batch_for("unimatch-v2", x, channels=11)
    x_l, y_l = labelled()
    expected = literal_cross_entropy(probabilities(reference, x_l), y_l)
    whole = (batch.lots.whole < 0.5).tolist()
    assert 0 < sum(whole) < N
    factors = [
        [1.0 if kept else 0.0 if lot < 0.5 else 2.0 for lot in row]
        for row, kept in zip(batch.lots.channels.tolist(), whole, strict=True)
    ]
    others = [[2 - factor for factor in row] for row in factors]
    views = literal_views(x, probabilities(teacher, x), 0.5)
    for (image, labels, sure), kept in zip(views, (factors, others), strict=True):
        expected = expected + 0.8 / 2 * literal_cross_entropy(literal_dropped(reference, image, kept), labels, sure)
    chosen = settings(alpha=0.8, confidence=0.5, loss="confident")
    losses = METHODS["unimatch-v2"].generator()(Models((student,), (teacher,)), batch, chosen)
    assert_same_gradients(losses, [student], expected, [reference])


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


@pytest.mark.parametrize("method", ["unimatch", "unimatch-v2"])
def test_a_network_without_an_encoder_is_refused_before_training(method, tmp_path):
    """With the way out."""
    config = small_streets(method=method, model={"factory": "test_field_methods:without_encoder", "width": 1.0})
    with pytest.raises(UserError, match=r"Conv2d has no `encoder`.*another --method"):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["classmix", "unimatch", "unimatch-v2"])
def test_whole_images_are_refused(method):
    """There are no pixels to mix and no decoder."""
    with pytest.raises(UserError, match=f"{method} segments images"):
        configured("cifar10", {"method": method}, source="test")


FIELD = ("fixmatch", "classmix", "cps", "unimatch", "unimatch-v2", "augseg")
SMALL = {
    "jitter": {"crop": (32, 48)},
    "train": {"batch_unlabelled": 4, "checkpoint_every": 2, "log_every": 1, "confidence": 0.05},
}


def contents(folder: Path) -> dict[str, Tensor]:
    """The kept model, and the last checkpoint with all networks and the optimiser."""
    last = sorted((folder / "checkpoint").glob("*.safetensors"))[-1]
    model = safetensors.torch.load_file(folder / "model.safetensors")
    return {f"model.{name}": tensor for name, tensor in model.items()} | safetensors.torch.load_file(last)


@pytest.mark.parametrize("method", FIELD)
def test_a_run_resumes_to_the_bit(method, tmp_path):
    """Four iterations; without the last two, continued, every tensor and every line of the metrics is the same."""
    config = small_streets(method=method, **SMALL)
    train(config, tmp_path, resume=False, console=QUIET)
    expected, metrics = contents(tmp_path), (tmp_path / "metrics.jsonl").read_text()
    assert all(json.loads(line).get("consistency", 1) > 0 for line in metrics.splitlines())
    for name in ("summary.json", "model.safetensors", "checkpoint/00000004.json", "checkpoint/00000004.safetensors"):
        (tmp_path / name).unlink()
    train(config, tmp_path, resume=True, console=QUIET)
    found = contents(tmp_path)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (tmp_path / "metrics.jsonl").read_text() == metrics
