"""Facts about what perturbations have in common: composition, labels, the way back; CutMix, noise and VAT."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from scipy.stats import ks_2samp, kstest, uniform
from torch import Tensor, nn

from oneway import ops
from oneway.common.streams import stream
from oneway.common.terms import IGNORE
from oneway.config import Model, Perturb
from oneway.draws import Boxes, Squares, draw_boxes, draw_perturbation, draw_small_boxes
from oneway.methods.vat import adversarial
from oneway.models import build
from oneway.ops.cutmix import box_mask
from oneway.ops.losses import masked_kl
from oneway.ops.warp import sampling_points, splat, valid_points, warp
from oneway.perturb import PERTURBATIONS, UNCHANGED, compose, perturb_labels, perturbation, phtps, tps
from oneway.perturb.named import cutmix, cutout, noise

HEIGHT, WIDTH = 48, 80


def smooth_image() -> Tensor:
    """Slow waves, between 0 and 1."""
    rows = torch.arange(HEIGHT, dtype=torch.float64)[:, None] / HEIGHT
    columns = torch.arange(WIDTH, dtype=torch.float64) / WIDTH
    waves = torch.stack((torch.sin(rows + columns), torch.cos(2 * columns - rows / 2), rows * columns))
    return ((waves + 1) / 2).expand(3, 3, HEIGHT, WIDTH)


def points_of(seed: int, strength: float = 0.05) -> Tensor:
    draw = draw_perturbation(seed, 0, 3).displacements.double()
    return sampling_points(strength * HEIGHT * draw, HEIGHT, WIDTH)


@pytest.mark.parametrize("seed", range(5))
def test_forward_warping_inverts_backward_warping(seed):
    """At the paper's strength a smooth image, warped and splatted back, is itself within 1 % of its range."""
    image, points = smooth_image(), points_of(seed)
    back, valid = splat(warp(image, points), points)
    # The way there lost what it moved out of sight; what it put there instead is not part of the round trip.
    seen, _ = splat(valid_points(points)[:, None].double(), points)
    counted = valid & (seen[:, 0] > 1 - 1e-9)
    assert counted.double().mean() > 0.7
    difference = (back - image).abs().amax(dim=1)[counted]
    assert difference.max() < 0.01


def test_splatting_without_displacement_is_the_identity():
    """Every pixel lands on itself with weight 1."""
    image = smooth_image()
    back, valid = splat(image, sampling_points(torch.zeros(3, 4, 2, dtype=torch.float64), HEIGHT, WIDTH))
    assert torch.equal(back, image)
    assert valid.all()


def test_splatting_by_hand():
    """One row of three pixels: the first two meet in the middle, the third leaves; a hole stays behind."""
    values = torch.tensor([[[[1.0, 3.0, 7.0]]]])
    columns = torch.tensor([0.75, 1.0, 9.0])
    points = torch.stack((columns, torch.zeros(3)), dim=-1).view(1, 1, 3, 2)
    result, valid = splat(values, points)
    # Pixel 0 receives ¼ of the first, too little; pixel 1 receives ¾ of the first and all of the second.
    assert result[0, 0, 0].tolist() == pytest.approx([0.0, (0.75 * 1 + 3) / 1.75, 0.0])
    assert valid[0, 0].tolist() == [False, True, False]


def test_splatting_keeps_distributions():
    """Probabilities brought back sum to one wherever they are valid."""
    p = torch.rand(3, 5, HEIGHT, WIDTH, dtype=torch.float64).softmax(dim=1)
    back, valid = splat(p, points_of(0))
    torch.testing.assert_close(back.sum(dim=1)[valid], torch.ones(int(valid.sum()), dtype=torch.float64))


def test_composition_is_one_after_the_other():
    """Images, predictions, validity and the way back, for two warps in a row."""
    x = smooth_image()
    first, second = (tps(draw_perturbation(seed, 0, 3), x, Perturb()) for seed in (0, 1))
    both = compose(first, second)
    assert torch.equal(both.image(x), second.image(first.image(x)))
    assert torch.equal(both.prediction(x), second.prediction(first.prediction(x)))
    assert both.valid is not None
    assert second.valid is not None
    assert first.valid is not None
    assert (both.valid <= second.valid).all()
    ones = second.prediction(first.valid[:, None].double())[:, 0] == 1
    assert torch.equal(both.valid, second.valid & ones)
    back, valid = both.inverse().prediction(both.prediction(x)), both.inverse().valid
    assert valid is not None
    assert (back - x).abs().amax(dim=1)[valid & (x[:, 0] > 2)].numel() == 0  # nothing is above its range
    assert valid.double().mean() > 0.6


def test_predictions_for_whole_images_ignore_geometry():
    """N×C predictions pass through PhTPS, and back, unchanged."""
    x, p = smooth_image(), torch.rand(3, 10)
    perturbation = phtps(draw_perturbation(0, 0, 3), x, Perturb())
    assert torch.equal(perturbation.prediction(p), p)
    assert torch.equal(perturbation.inverse().prediction(p), p)


def test_labels_move_to_the_nearest_pixel():
    """As SciPy samples them at the same points with order 0; IGNORE where the perturbation leaves nothing."""
    config, draw = Perturb(), draw_perturbation(3, 0, count=1)
    labels = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (1, HEIGHT, WIDTH), dtype=np.uint8))
    x = torch.zeros(1, 3, HEIGHT, WIDTH)
    points = sampling_points(config.deviation * HEIGHT * draw.displacements, HEIGHT, WIDTH)[0].numpy()
    expected = map_coordinates(labels[0].numpy(), np.moveaxis(points[..., ::-1], -1, 0).round(), order=0)
    perturbation = phtps(draw, x, config)
    assert perturbation.valid is not None
    valid = perturbation.valid[0].numpy()
    moved = perturb_labels(labels, perturbation)[0].numpy()
    assert not valid.all()
    assert (moved[valid] == expected[valid]).all()
    assert (moved[~valid] == IGNORE).all()
    assert torch.equal(perturb_labels(labels, UNCHANGED), labels)


def test_boxes_have_half_the_area():
    """1,000 boxes: areas are one half up to rounding, sides between half and all, every pixel is reached."""
    masks = box_mask(draw_boxes(stream(0, "test"), 1000), (HEIGHT, WIDTH)).double()
    areas = masks.mean(dim=(1, 2))
    assert (areas - 0.5).abs().max() < 0.02
    heights = masks.amax(dim=2).mean(dim=1)
    assert heights.min() >= 0.5
    assert heights.max() <= 1
    # log-uniform: the median of the height is 2^-½
    assert abs(heights.median() - 0.5**0.5) < 0.03
    coverage = masks.mean(dim=0)
    assert coverage.min() > 0
    torch.testing.assert_close(coverage, coverage.flip(0), atol=0.08, rtol=0)
    torch.testing.assert_close(coverage, coverage.flip(1), atol=0.08, rtol=0)


def test_small_boxes_are_drawn_as_in_unimatch():
    """Against drawing until one fits: areas, heights and places of 20,000; and nothing is cut in half of the cases."""
    boxes = draw_small_boxes(stream(0, "test"), 20_000)
    used = boxes.area > 0
    assert float(used.double().mean()) == pytest.approx(0.5, abs=0.02)
    found = [(boxes.area, boxes.height, boxes.area / boxes.height)[column][used].numpy() for column in range(3)]
    random, wanted = stream(1, "test"), []
    while len(wanted) < 5000:
        area = random.uniform(0.02, 0.4)
        while True:
            ratio, top, left = random.uniform(0.3, 1 / 0.3), random.random(), random.random()
            height, width = (area * ratio) ** 0.5, (area / ratio) ** 0.5
            if top + height <= 1 and left + width <= 1:
                break
        wanted.append((area, height, width))
    for ours, theirs in zip(found, zip(*wanted, strict=True), strict=True):
        assert ks_2samp(ours, theirs).statistic < 0.03
    masks = box_mask(Boxes(*(column[used] for column in boxes)), (HEIGHT, WIDTH)).double()
    torch.testing.assert_close(masks.mean(dim=(1, 2)).float(), boxes.area[used], atol=0.03, rtol=0)
    coverage = masks.mean(dim=0)
    torch.testing.assert_close(coverage, coverage.flip(0), atol=0.03, rtol=0)
    torch.testing.assert_close(coverage, coverage.flip(1), atol=0.03, rtol=0)


def test_small_boxes_mix_image_wide_targets_by_area():
    """As much of the other as was cut from it; where nothing was, nothing."""
    p = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    boxes = Boxes(torch.full((2,), 0.5), torch.zeros(2), torch.zeros(2), torch.tensor([0.1, 0.0]))
    torch.testing.assert_close(ops.cutmix(p, boxes)[:, 0], torch.tensor([0.9, 1.0, 0.1, 0.0]))
    pictures = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 8, 8)
    mixed = ops.cutmix(pictures, boxes)
    assert torch.equal(mixed[1], pictures[1])
    assert 0 < mixed[0].mean() < 0.5


def test_cutmix_exchanges_the_same_box_in_images_and_targets():
    """By hand: in a pair, image and target have the partner's values inside the box and their own outside."""
    draw = draw_perturbation(0, 0, 5)._replace(boxes=Boxes(torch.tensor([0.5, 1.0]), torch.zeros(2), torch.ones(2)))
    x = torch.arange(5.0).view(5, 1, 1, 1).expand(5, 3, 4, 4)
    p = 10 * torch.arange(5.0).view(5, 1, 1, 1).expand(5, 2, 4, 4)
    perturbation = cutmix(draw, x, Perturb())
    mixed, target = perturbation.image(x), perturbation.prediction(p)
    top_half = torch.tensor([[2.0] * 4] * 2 + [[0.0] * 4] * 2)  # image 0 is paired with image 2: rows 0 and 1
    right_half = torch.tensor([[1.0, 1.0, 3.0, 3.0]] * 4)  # image 1 with image 3: columns 2 and 3
    assert torch.equal(mixed[0, 0], top_half)
    assert torch.equal(mixed[2, 0], 2 - top_half)
    assert torch.equal(mixed[1, 0], right_half)
    assert torch.equal(mixed[3, 0], 4 - right_half)
    assert torch.equal(mixed[4], x[4])  # the odd one
    assert torch.equal(target[:, 0], 10 * mixed[:, 0])
    assert torch.equal(perturbation.image(mixed), x)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_every_perturbation_has_a_way_back(name):
    """What it does to predictions is undone to within 1 % on valid pixels; a new one that forgets it fails here."""
    image = torch.stack((smooth_image()[0], smooth_image()[0].flip(1), smooth_image()[0].flip(2)))
    draw = draw_perturbation(0, 0, 3, noise_shape=image.shape[1:])
    perturbation = PERTURBATIONS[name](draw, image, Perturb())
    inverse = perturbation.inverse()
    back, valid = inverse.prediction(perturbation.prediction(image)), inverse.valid
    if perturbation.valid is not None:
        seen = inverse.prediction(perturbation.valid[:, None].double())
        valid = valid & (seen[:, 0] > 1 - 1e-9)
    difference = (back - image).abs().amax(dim=1)
    assert (difference if valid is None else difference[valid]).max() < 0.01


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_labels_go_where_their_images_go(name):
    """Also into another image of the batch: a picture of the labels is perturbed as they are."""
    labels = torch.randint(0, 200, (3, HEIGHT, WIDTH), generator=torch.Generator().manual_seed(0))
    labels = labels.repeat_interleave(8, dim=1).repeat_interleave(8, dim=2)
    pictures = labels[:, None].double()
    perturbation = PERTURBATIONS[name](draw_perturbation(0, 0, 3, noise_shape=pictures.shape[1:]), pictures, Perturb())
    moved, shown = perturb_labels(labels, perturbation), perturbation.prediction(pictures)[:, 0]
    # Away from edges, where a picture is blurred and labels are not.
    assert ((moved - shown).abs() < 1e-6)[moved != IGNORE].double().mean() > 0.7


def test_cutmix_mixes_image_wide_targets_by_area():
    """Half of one, half of the other."""
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    boxes = draw_boxes(stream(0, "test"), 1)
    torch.testing.assert_close(ops.cutmix(p, boxes), torch.full((2, 2), 0.5))


def test_cutout_makes_a_square_grey():
    """By hand: a square of 4×4 pixels around the middle, and one that ends where its image does."""
    squares = Squares(torch.full((2,), 0.5), torch.tensor([0.5, 0.0]), torch.tensor([0.5, 0.99]))
    x = torch.rand(2, 3, 8, 8)
    grey = cutout(draw_perturbation(0, 0, 2)._replace(squares=squares), x, Perturb()).image(x)
    inside = torch.zeros(2, 8, 8, dtype=torch.bool)
    inside[0, 2:6, 2:6] = inside[1, :2, 5:] = True
    assert torch.equal(grey, torch.where(inside[:, None], 0.5, x))


def test_squares_are_drawn_as_in_fixmatch():
    """Sides of up to half an image's, and centres anywhere; every image has its own."""
    side, y, x = draw_perturbation(0, 0, 4000).squares
    for column, most in ((side, 0.5), (y, 1), (x, 1)):
        assert kstest(column, uniform(0, most).cdf).pvalue > 0.001


def test_noise_has_its_deviation():
    """σ times the draw, a different one for each number of each input."""
    x = torch.zeros(50, 2)
    draw = draw_perturbation(0, 0, 50, noise_shape=(2,))
    perturbed = noise(draw, x, Perturb(noise=0.2)).image(x)
    torch.testing.assert_close(perturbed, 0.2 * draw.noise)
    assert abs(perturbed.std() - 0.2) < 0.03


class TestVirtualAdversary:
    """One power iteration on a small classifier, in double precision."""

    norm = 0.5

    def world(self) -> tuple[nn.Module, Tensor]:
        model = build(Model(name="mlp"), 3, seed=0).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3)  # sharper predictions have a curvature worth finding
        return model, torch.randn(64, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def divergence(self, model: nn.Module, x: Tensor, r: Tensor) -> float:
        with torch.no_grad():
            return float(masked_kl(model(x).softmax(1), model(x + r), None))

    def directions(self, count: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(1)
        return [torch.randn(64, 2, dtype=torch.float64, generator=generator) for _ in range(count)]

    def test_the_change_has_the_norm_asked_for(self):
        """For every input."""
        model, x = self.world()
        r = adversarial(model, x, self.directions(1)[0], self.norm).r
        torch.testing.assert_close(r.norm(dim=1), torch.full((64,), self.norm, dtype=torch.float64))

    def test_it_diverges_more_than_random_changes_of_the_same_norm(self):
        """Than each of twenty."""
        model, x = self.world()
        start, *others = self.directions(21)
        found = self.divergence(model, x, adversarial(model, x, start, self.norm).r)
        random = [self.divergence(model, x, self.norm * r / r.norm(dim=1, keepdim=True)) for r in others]
        assert found > max(random)

    def test_it_is_the_limit_of_the_published_iteration(self):
        """A gradient taken at ξ = 1e-6 along the start points the same way, in double precision."""
        model, x = self.world()
        start = self.directions(1)[0]
        probe = (1e-6 * start / start.norm(dim=1, keepdim=True)).requires_grad_()
        (gradient,) = torch.autograd.grad(masked_kl(model(x).softmax(1).detach(), model(x + probe), None), probe)
        published = gradient / gradient.norm(dim=1, keepdim=True)
        ours = adversarial(model, x, start, 1.0).r
        torch.testing.assert_close(ours, published, atol=1e-3, rtol=0)

    def test_the_models_gradients_are_left_alone(self):
        """Searching the change trains nothing."""
        model, x = self.world()
        adversarial(model, x, self.directions(1)[0], self.norm)
        assert all(parameter.grad is None for parameter in model.parameters())


def test_phtps_then_cutmix_by_hand():
    """Inside its box, an image has the warped and recoloured partner, with the partner's target and validity."""
    x = torch.rand(2, 3, 24, 32, generator=torch.Generator().manual_seed(0))
    drawn = draw_perturbation(0, 0, 2)
    both = perturbation(("phtps", "cutmix"), drawn, x, Perturb(geometric=2.0))
    first = perturbation(("phtps",), drawn, x, Perturb(geometric=2.0))
    inside = ops.cutmix(torch.stack((torch.zeros(1, 24, 32), torch.ones(1, 24, 32))), drawn.boxes)[0, 0].bool()
    assert 0.4 < inside.float().mean() < 0.6
    for whole, parts in (
        (both.image(x), first.image(x)),
        (both.prediction(x), first.prediction(x)),
        (both.valid[:, None], first.valid[:, None]),
    ):
        assert torch.equal(whole[0], torch.where(inside, parts[1], parts[0]))
        assert torch.equal(whole[1], torch.where(inside, parts[0], parts[1]))
    assert not first.valid.all()


@pytest.mark.parametrize("names", [("cutmix", "phtps"), ("tps", "cutmix", "tps"), ("ph", "cutmix"), ()])
def test_any_order_composes(names):
    """Where predictions are the pixels themselves, both branches agree on every valid pixel, whatever the order."""
    x = torch.rand(4, 3, 16, 20, generator=torch.Generator().manual_seed(0))
    changes = perturbation(names, draw_perturbation(0, 0, 4), x, Perturb(photometric=0.0))
    valid = changes.valid if changes.valid is not None else torch.ones(4, 16, 20, dtype=torch.bool)
    difference = (changes.image(x) - changes.prediction(x)).abs().amax(dim=1)
    assert difference[valid].max() < 1e-6
    assert valid.float().mean() > 0.5
