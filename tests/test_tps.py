"""Facts about the thin-plate-spline warp."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import RBFInterpolator
from scipy.ndimage import map_coordinates

from oneway.ops.warp import sampling_points, valid_points, warp

SIZES = [(64, 128), (37, 53), (96, 64)]


def random_displacements(height: int, count: int = 3, strength: float = 0.1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height)
    return strength * height * torch.randn(count, 4, 2, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("at", [(0.25, 0.75), (0.75, 1.25)])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_field_is_scipys_thin_plate_spline(height, width, at):
    """The dense field is SciPy's interpolation of the displacements from the control points, outside too."""
    displacements = random_displacements(height)
    control = np.array([(x * width, y * height) for y in at for x in at])
    rows, columns = np.mgrid[:height, :width] + 0.5
    pixels = np.stack((columns.ravel(), rows.ravel()), axis=1)
    field = pixels.reshape(height, width, 2) - 0.5 - sampling_points(displacements, height, width, at).numpy()
    for image, displacement in zip(field, displacements.numpy(), strict=True):
        expected = RBFInterpolator(control, displacement, kernel="thin_plate_spline", degree=1)(pixels)
        np.testing.assert_allclose(image.reshape(-1, 2), expected, atol=1e-5)


def test_control_points_move_by_their_displacements():
    """A feature under a control point c' − d of the input appears at c' of the output: the warp is backward."""
    image = torch.zeros(1, 1, 64, 64)
    image[0, 0, 10, 20] = 1  # its centre is at (20.5, 10.5)
    # Control point (16, 16) is not a pixel centre: give all four the same displacement, so that the field is constant.
    displacement = torch.tensor([5.0, 3.0]).expand(1, 4, 2)
    moved = warp(image, sampling_points(displacement, 64, 64))
    assert moved[0, 0, 13, 25] == pytest.approx(1, abs=1e-4)
    assert moved.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_zero_displacement_is_the_identity_to_the_bit(height, width):
    """Without displacement every pixel stays, exactly, at sizes that are no powers of two as well."""
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    points = sampling_points(torch.zeros(2, 4, 2), height, width)
    assert torch.equal(warp(x, points), x)
    assert valid_points(points).all()


def test_points_are_exact_within_autocast():
    """A pixel's place has more digits than bfloat16."""
    displacements = random_displacements(352, strength=0.05).float()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = sampling_points(displacements, 352, 352)
    assert torch.equal(rounded, sampling_points(displacements, 352, 352))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_valid_pixels_are_those_where_warped_ones_are_one(dtype):
    """The mask is the paper's definition, ⌊T(1)⌋, for our warp exactly and for SciPy's bilinear sampling."""
    height, width = 48, 80
    points = sampling_points(random_displacements(height, strength=0.2).to(dtype), height, width)
    valid = valid_points(points)
    assert 0.02 < (~valid).double().mean() < 0.8
    warped = warp(torch.ones(3, 1, height, width, dtype=dtype), points)[:, 0]
    assert torch.equal(warped == 1, valid)
    for mask, place in zip(valid, points.double().numpy(), strict=True):
        ones = map_coordinates(np.ones((height, width)), (place[..., 1], place[..., 0]), order=1, mode="grid-constant")
        np.testing.assert_array_equal(mask.numpy(), ones > 1 - 1e-12)


def test_warp_samples_bilinearly():
    """Inside the image, values are those of SciPy's first-order spline."""
    image = torch.rand(3, 2, 40, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    points = sampling_points(random_displacements(40), 40, 60)
    warped, valid = warp(image, points), valid_points(points)
    for n in range(3):
        place = (points[n, ..., 1].numpy(), points[n, ..., 0].numpy())
        for c in range(2):
            expected = map_coordinates(image[n, c].numpy(), place, order=1, mode="nearest")
            np.testing.assert_allclose(warped[n, c][valid[n]].numpy(), expected[valid[n].numpy()], atol=1e-12)


def test_each_image_has_its_own_warp():
    """Displacements belong to images, not to the batch."""
    x = torch.rand(1, 3, 32, 32).expand(2, 3, 32, 32)
    displacements = torch.stack((torch.zeros(4, 2), torch.full((4, 2), 2.0)))
    warped = warp(x, sampling_points(displacements, 32, 32))
    assert torch.equal(warped[0], x[0])
    torch.testing.assert_close(warped[1, :, 3:, 3:], x[0, :, 1:-2, 1:-2])
