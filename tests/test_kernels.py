"""Facts about the fused kernels, against the plain functions in double precision.

Triton decides when it is imported whether it compiles for a GPU or interprets on the CPU. So the facts, functions named
`fact_…`, are checked in a process of their own: compiled where there is a GPU, interpreted elsewhere.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_facts import DEVICE, assert_facts
from oneway.common.terms import IGNORE
from oneway.config import Jitter
from oneway.draws import Boxes, Colours, CropDraws, Photometric
from oneway.engine.jitter import _window
from oneway.engine.store import Store
from oneway.models.ema import init_ema, update_ema
from oneway.ops.backend import references
from oneway.ops.cells import kernel_upsamples
from oneway.ops.colour import jitter_colours, jitter_colours_by_kernel
from oneway.ops.crops import Window, crop_images_by_kernel, crop_labels_by_kernel
from oneway.ops.cross_entropy import cross_entropy, cross_entropy_by_kernel
from oneway.ops.cutmix import cutmix
from oneway.ops.losses import masked_kl, upsample
from oneway.ops.moved_kl import Geometry, moved_kl_by_kernel
from oneway.ops.photometric import photometric
from oneway.ops.phtps import phtps_by_kernel
from oneway.ops.warp import Warp, sampling_points, valid_points, warp

UPSTREAM = 0.7


@pytest.mark.parametrize("kernel", ["cross_entropy", "moved_kl", "perturb", "colours", "crops", "averages"])
def test_facts_hold(kernel):
    """Everything below about one kernel."""
    assert_facts(__file__, kernel)


def test_what_is_not_for_these_kernels():
    """Tensors on the CPU are left to the plain losses."""
    assert not kernel_upsamples(torch.zeros(1, 2, 4, 4), (16, 16))


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def random_labels(classes: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(classes, shape, generator=generator)
    labels[torch.rand(shape, generator=generator) < 0.2] = IGNORE
    return labels.to(DEVICE)


def random_warp(n: int, height: int, width: int, deviation: float) -> Warp:
    return Warp(deviation * random(n, 4, 2, seed=11), height, width)


def loss_and_gradient(loss, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A loss of logits, and the gradient of a multiple of it."""
    logits = logits.detach().requires_grad_()
    value = loss(logits)
    (UPSTREAM * value).backward()
    return value.detach(), logits.grad


def assert_agree(fused, plain, logits: torch.Tensor, tolerance: float = 1e-5) -> None:
    """The fused loss has the plain one's value and gradient, computed in double precision."""
    value, gradient = loss_and_gradient(fused, logits)
    expected_value, expected = loss_and_gradient(plain, logits.double())
    assert gradient.dtype == logits.dtype
    assert gradient.stride() == logits.stride()
    torch.testing.assert_close(value.double(), expected_value, rtol=tolerance, atol=0)
    torch.testing.assert_close(
        gradient.double(), expected, rtol=tolerance, atol=tolerance * expected.abs().max().item()
    )


SIZES = {
    "two images, stride 4": (2, 3, (3, 5), (12, 20)),
    "not whole multiples": (1, 2, (5, 6), (18, 23)),
    "ratios below 4": (1, 11, (3, 4), (7, 9)),
    "full resolution": (1, 3, (4, 3), (4, 3)),
    "stride 8": (1, 3, (2, 3), (16, 24)),
    "nineteen classes, one row of cells, two programs": (1, 19, (1, 17), (4, 68)),
}


@pytest.mark.parametrize(("n", "classes", "cells", "pixels"), SIZES.values(), ids=SIZES)
def fact_cross_entropy_is_the_plain_one(n, classes, cells, pixels):
    """Value and gradient are those of bilinear upsampling and PyTorch's cross-entropy, whatever the sizes."""
    logits, labels = 3 * random(n, classes, *cells), random_labels(classes, n, *pixels)
    assert_agree(lambda x: cross_entropy_by_kernel(x, labels), lambda x: cross_entropy(x, labels), logits)


def fact_cross_entropy_takes_labels_as_bytes():
    """Stored labels need not be widened first."""
    logits, labels = random(1, 3, 3, 3), random_labels(3, 1, 12, 12)
    assert cross_entropy_by_kernel(logits, labels.byte()) == cross_entropy_by_kernel(logits, labels)


def fact_cross_entropy_of_equal_logits_is_ln_c():
    """Wherever there is a label, the loss is ln 5 with five classes."""
    loss = cross_entropy_by_kernel(torch.zeros(1, 5, 3, 3, device=DEVICE), random_labels(5, 1, 12, 12))
    assert loss.item() == pytest.approx(math.log(5), rel=1e-6)


def fact_cross_entropy_of_extreme_logits_is_finite():
    """Neighbouring cells may differ by hundreds: a pixel's maximum may be far below its cells'."""
    logits, labels = 200 * random(1, 4, 3, 3), random_labels(4, 1, 12, 12)
    assert_agree(lambda x: cross_entropy_by_kernel(x, labels), lambda x: cross_entropy(x, labels), logits)


def fact_cross_entropy_in_bfloat16_only_rounds_what_goes_in_and_out():
    """Logits that a network left in its memory layout: the same numbers' gradient, to the last bit that there is."""
    logits = random(2, 5, 3, 4).bfloat16().contiguous(memory_format=torch.channels_last)
    labels = random_labels(5, 2, 12, 16)
    value, gradient = loss_and_gradient(lambda x: cross_entropy_by_kernel(x, labels), logits)
    expected_value, expected = loss_and_gradient(lambda x: cross_entropy(x, labels), logits.double())
    torch.testing.assert_close(value.double(), expected_value, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), expected, rtol=2**-7, atol=1e-8)


def fact_cross_entropy_of_nothing_is_zero():
    """All ignored: 0 with a gradient of 0, not NaN."""
    labels = torch.full((1, 12, 12), IGNORE, device=DEVICE)
    value, gradient = loss_and_gradient(lambda x: cross_entropy_by_kernel(x, labels), random(1, 3, 3, 3))
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize(("n", "classes", "cells", "pixels"), SIZES.values(), ids=SIZES)
def fact_moved_kl_is_the_plain_one(n, classes, cells, pixels):
    """Value and gradient are those of upsampling, softmax, warp and masked KL, with samples that leave the image."""
    teacher, student = 3 * random(n, classes, *cells, seed=1), 3 * random(n, classes, *cells, seed=2)
    student = student.contiguous(memory_format=torch.channels_last)
    transform = random_warp(n, *pixels, 0.05 * pixels[0])
    points = sampling_points(transform.displacements.double(), *pixels)
    target, valid = warp(upsample(teacher.double(), pixels).softmax(1), points), valid_points(points)
    assert 0 < valid.float().mean() < 1
    assert_agree(
        lambda x: moved_kl_by_kernel(teacher, x, pixels, Geometry(transform)),
        lambda x: masked_kl(target, x, valid),
        student,
    )


def fact_moved_kl_without_a_warp_is_the_mean_over_all_pixels():
    """Upsampling, softmax, KL."""
    teacher, student = 3 * random(2, 11, 3, 4, seed=1), 3 * random(2, 11, 3, 4, seed=2)
    target = upsample(teacher.double(), (11, 14)).softmax(1)
    assert_agree(lambda x: moved_kl_by_kernel(teacher, x, (11, 14)), lambda x: masked_kl(target, x, None), student)


@pytest.mark.parametrize(("n", "by_confidence"), [(2, False), (5, True)])
def fact_moved_kl_of_exchanged_rectangles_is_the_plain_one(n, by_confidence):
    """Also where an odd image is left alone, a rectangle is empty, and the teacher's confidence weighs the pixels."""
    pixels, pairs = (11, 14), n // 2
    teacher, student = 3 * random(n, 4, 3, 4, seed=1), 3 * random(n, 4, 3, 4, seed=2)
    boxes = Boxes(
        *(0.3 + 0.5 * random(pairs, seed=seed).sigmoid() for seed in (3, 4, 5)), random(pairs, seed=6).sigmoid()
    )
    if pairs > 1:
        boxes.area[1] = 0
    alone = upsample(teacher.double(), pixels).softmax(1)
    target = cutmix(alone, boxes)
    assert not torch.equal(target, alone)
    weight = target.amax(dim=1) if by_confidence else None
    assert_agree(
        lambda x: moved_kl_by_kernel(teacher, x, pixels, Geometry(boxes=boxes), by_confidence),
        lambda x: masked_kl(target, x, None, weight),
        student,
    )


def fact_moved_kl_learns_from_the_student_alone():
    """The teacher's logits get no gradient."""
    teacher, student = random(1, 3, 3, 3, seed=1).requires_grad_(), random(1, 3, 3, 3, seed=2).requires_grad_()
    moved_kl_by_kernel(teacher, student, (12, 12), Geometry(random_warp(1, 12, 12, 0.5))).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() > 0


def fact_moved_kl_with_a_warp_that_moves_nothing_is_that_without():
    """Zero displacements are the identity, and every pixel is valid."""
    teacher, student = random(1, 4, 3, 4, seed=1), random(1, 4, 3, 4, seed=2)
    still = loss_and_gradient(
        lambda x: moved_kl_by_kernel(teacher, x, (11, 16), Geometry(random_warp(1, 11, 16, 0.0))), student
    )
    plain = loss_and_gradient(lambda x: moved_kl_by_kernel(teacher, x, (11, 16)), student)
    for a, b in zip(still, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def fact_moved_kl_of_equal_predictions_is_zero():
    """A student that agrees has nothing to learn."""
    logits = 5 * random(1, 4, 3, 4)
    value, gradient = loss_and_gradient(lambda x: moved_kl_by_kernel(logits, x, (12, 16)), logits)
    assert abs(value) < 1e-6
    assert gradient.abs().max() < 1e-6


def fact_moved_kl_of_nothing_is_zero():
    """No sample inside the image: 0 with a gradient of 0, not NaN."""
    away = Warp(torch.full((1, 4, 2), 100.0, device=DEVICE), 12, 12)
    value, gradient = loss_and_gradient(
        lambda x: moved_kl_by_kernel(x.detach(), x, (12, 12), Geometry(away)), random(1, 3, 3, 3)
    )
    assert value == 0
    assert (gradient == 0).all()


def fact_moved_kl_in_bfloat16_only_rounds_what_goes_in_and_out():
    """A teacher and a student in bfloat16 have the divergence that the same numbers have in double precision."""
    teacher, student = random(1, 5, 3, 4, seed=1).bfloat16(), random(1, 5, 3, 4, seed=2).bfloat16()
    target = upsample(teacher.double(), (12, 16)).softmax(1)
    value, gradient = loss_and_gradient(lambda x: moved_kl_by_kernel(teacher, x, (12, 16)), student)
    expected_value, expected = loss_and_gradient(lambda x: masked_kl(target, x, None), student.double())
    torch.testing.assert_close(value.double(), expected_value, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), expected, rtol=2**-7, atol=1e-8)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0, 1.5])
def fact_colours_are_jittered_as_plainly(strength):
    """Images with everything, with nothing, and with each part alone, in more than one tile.

    The numbers that decide lie in memory as `draw_colours` leaves them, one column after another.
    """
    x = random(5, 3, 41, 30).sigmoid()
    u = torch.tensor([[0, 0, 0], [0.99, 0.99, 0.99], [0, 0.99, 0.99], [0.99, 0, 0.99], [0.99, 0.99, 0]], device=DEVICE)
    u = u.T.contiguous().T
    changes = [random(5, seed=seed).sigmoid() - 0.5 for seed in (1, 2, 3)]
    draw = Colours(*changes, changes[0] / 2, 0.1 + 1.9 * random(5, seed=4).sigmoid(), u)
    with references():
        expected = jitter_colours(x.double(), draw, strength)
    found = jitter_colours_by_kernel(x, draw, strength)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=3e-6)
    assert (strength == 0) == torch.allclose(found, x, atol=1e-5)


def draw_of_colours() -> Photometric:
    """Two images: one with its channels exchanged, one with its hue turned back."""
    return Photometric(
        brightness=torch.tensor([0.2, -0.25], device=DEVICE),
        saturation=torch.tensor([0.4, 1.7], device=DEVICE),
        hue=torch.tensor([0.08, -0.1], device=DEVICE),
        contrast=torch.tensor([1.2, 0.8], device=DEVICE),
        permutation=torch.tensor([[2, 0, 1], [0, 1, 2]], device=DEVICE),
        u=torch.zeros(2, device=DEVICE),
    )


def images(height: int, width: int) -> torch.Tensor:
    """Two images with colours of all kinds, grey included."""
    x = random(2, 3, height, width).sigmoid()
    x[:, :, :2] = 0.5
    return x


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("warped", [True, False])
@pytest.mark.parametrize("coloured", [True, False])
def fact_perturb_is_the_plain_one(coloured, warped, memory_format):
    """Colours change, then the image is warped, at a size that fills no whole number of programs."""
    x, draw = images(17, 23).contiguous(memory_format=memory_format), draw_of_colours()
    transform = random_warp(2, 17, 23, 1.0)
    expected = photometric(x.double(), draw) if coloured else x.double()
    if warped:
        points = sampling_points(transform.displacements.double(), 17, 23)
        assert 0 < valid_points(points).float().mean() < 1
        expected = warp(expected, points)
    perturbed = phtps_by_kernel(x, draw if coloured else None, transform if warped else None)
    assert perturbed.stride() == x.stride()
    torch.testing.assert_close(perturbed.double(), expected, rtol=1e-5, atol=1e-5)


def fact_perturb_leaves_what_it_need_not_touch():
    """A warp that moves nothing gives the image back to the bit."""
    x = images(9, 16)
    assert (phtps_by_kernel(x, None, random_warp(2, 9, 16, 0.0)) == x).all()


def fact_perturb_keeps_the_type():
    """bfloat16 images stay that."""
    x = images(9, 16).bfloat16()
    expected = photometric(x.double(), draw_of_colours())
    torch.testing.assert_close(phtps_by_kernel(x, draw_of_colours(), None), expected.bfloat16(), rtol=2**-7, atol=2**-9)


def fact_averages_move_as_pytorch_moves_them():
    """To the bit, in several pieces and short ones, also where memory has another order, or was given anew."""
    torch.manual_seed(0)
    student = nn.Sequential(nn.Conv2d(3, 300, 5), nn.BatchNorm2d(300), nn.Conv2d(300, 7, 3)).to(DEVICE)
    teachers = [init_ema(student), init_ema(student)]
    share = torch.tensor(0.013, device=DEVICE)
    for step in range(4):
        if step == 2:
            for network in (student, *teachers):
                network.to(memory_format=torch.channels_last)
        for parameter in student.parameters():
            parameter.data += torch.randn_like(parameter)
        student[1].num_batches_tracked += 1
        update_ema(teachers[0], student, share)
        with references():
            update_ema(teachers[1], student, share)
        for a, b in zip(*(teacher.state_dict().values() for teacher in teachers), strict=True):
            assert torch.equal(a, b)


def fact_crops_lie_where_pytorch_puts_them():
    """To the bit, as without kernels: images smaller and larger than their crops, scaled or not, flipped, reflected."""
    random_state = torch.Generator().manual_seed(0)
    size = torch.randint(5, 200, (9, 2), generator=random_state)
    pixels = torch.zeros(int(size.prod(dim=1).sum()), 3, dtype=torch.uint8)
    start = size.prod(dim=1).cumsum(0) - size.prod(dim=1)
    store = Store(*(tensor.to(DEVICE) for tensor in (pixels, pixels[:, 0], start, size)), dense=True)
    uniform = torch.rand(3, 40, generator=random_state)
    scale = torch.where(uniform[0] < 0.2, 1.0, 0.5 + 2 * uniform[0])
    columns = (torch.arange(40) % 9, scale, *uniform[1:], torch.arange(40) % 2 == 0)
    draw = CropDraws(*(column.to(DEVICE) for column in columns))
    for config in (Jitter(crop=(33, 70)), Jitter(crop=(48, 32), padding=4, beyond="mirror")):
        with references():
            expected = _window(store, draw, config, config.crop)
        found = _window(store, draw, config, config.crop)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def fact_crops_are_those_of_grid_sample():
    """Two images of different sizes in one row, one enlarged and one mirrored, with crops that reach beyond both."""
    sizes, starts = torch.tensor([(9, 13), (11, 7)]), torch.tensor([4, 121])
    random_state = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (200, 3), dtype=torch.uint8, generator=random_state)
    labels = torch.randint(9, (200,), dtype=torch.uint8, generator=random_state)
    y = torch.stack(((torch.arange(16) - 2.5) / 1.3, torch.arange(16) - 3.5))
    x = torch.stack(((torch.arange(18) - 1.5) / 1.3, 7 - (torch.arange(18) - 4.5)))

    window = Window(*(tensor.to(DEVICE) for tensor in (starts, *sizes.T, y, x)))
    crops = crop_images_by_kernel(pixels.to(DEVICE), window, padding=0.25).cpu()
    label_crops = crop_labels_by_kernel(labels.to(DEVICE), window).cpu()

    for n, ((height, width), start) in enumerate(zip(sizes.tolist(), starts.tolist(), strict=True)):
        places = slice(start, start + height * width)
        image = pixels[places].view(1, height, width, 3).permute(0, 3, 1, 2).double() / 255
        label_map = labels[places].view(1, 1, height, width).double()
        grid = torch.stack(torch.meshgrid(2 * x[n] / width - 1, 2 * y[n] / height - 1, indexing="xy"), dim=-1)
        grid = grid.double()[None]
        inside = (grid.abs() <= 1).all(dim=-1)[0]
        assert 0 < inside.float().mean() < 1
        expected = F.grid_sample(image, grid, padding_mode="border", align_corners=False)[0]
        torch.testing.assert_close(crops[n].double(), torch.where(inside, expected, 0.25), rtol=0, atol=1e-5)
        nearest = F.grid_sample(label_map, grid, mode="nearest", padding_mode="border", align_corners=False)[0, 0]
        assert torch.equal(label_crops[n], torch.where(inside, nearest, IGNORE).long())
