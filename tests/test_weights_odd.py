"""State dicts that hold something else than names and dense tensors: refused, with the file and the key."""

from __future__ import annotations

import warnings
import zipfile
from collections import OrderedDict

import pytest
import safetensors.torch
import torch
from torch import nn

from oneway.common.errors import UserError
from oneway.config import Model
from oneway.models import build
from oneway.runs.weights import load_weights, read


def quantised() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):  # torch will not make them for ever
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


DENSE = torch.arange(6.0).view(2, 3)
ODD = {
    "sparse": ({"w": DENSE.to_sparse()}, "its 'w' is sparse"),
    "meta": ({"w": DENSE.to("meta")}, "its 'w' has a shape and no values"),
    "quantised": ({"w": quantised()}, "its 'w' is quantised"),
    "complex": ({"w": DENSE.to(torch.complex64)}, "its 'w' has values of type complex64"),
    "eighths": ({"w": DENSE.to(torch.float8_e4m3fn)}, "its 'w' has values of type float8"),
    "expanded": ({"w": torch.zeros(1).expand(2**40)}, "its 'w' announces more values than it has"),
    "numbers as keys": ({"a": DENSE, 7: DENSE}, "among its names is a int"),
    "numbers as keys, wrapped": ({"state_dict": {7: DENSE}}, "among its names is a int"),
    "tuples as keys": ({(1, 2): DENSE}, "among its names is a tuple"),
    "nested": ({"a": DENSE, "layers": {"0": DENSE}}, "its 'layers' is a dict"),
    "a list in it": ({"a": [DENSE]}, "its 'a' is a list"),
    "nothing in it": ({"a": DENSE, "b": None}, "its 'b' is a NoneType"),
    "a list": ([DENSE, DENSE], "it is a list"),
    "a tensor": (DENSE, "it is a Tensor"),
    "a number": (5, "it is a int"),
    "wrapped thrice": ({"model": OrderedDict(a=DENSE, b=DENSE.to_sparse())}, "its 'b' is sparse"),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_no_dense_tensor_is_named(what, tmp_path):
    """In either of torch's formats."""
    state, said = ODD[what]
    for older in (False, True):
        if older and what in ("quantised", "eighths"):
            continue  # not to be had there
        path = tmp_path / f"{older}.pth"
        torch.save(state, path, _use_new_zipfile_serialization=not older)
        with pytest.raises(UserError) as error:
            read(str(path))
        assert f"model.weights {path}: not a readable state dict ({said}" in str(error.value)


def test_types_without_numbers_are_named_in_safetensors_too(tmp_path):
    """Of eight bits, which no network here has."""
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"w": DENSE.to(torch.float8_e5m2)}, path)
    with pytest.raises(UserError, match=r"w\.safetensors: not a readable state dict \(its 'w' has values of type flo"):
        read(str(path))


def small() -> nn.Module:
    return build(Model(width=0.125), 5, 0)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("conv1.weight", float("nan"), "its conv1.weight has values that are not finite"),
        ("layer1.0.bn1.running_mean", float("inf"), "its layer1.0.bn1.running_mean has values that are not finite"),
        ("layer2.0.bn2.running_var", -1.0, "its layer2.0.bn2.running_var has negative variances"),
        ("fc.weight", float("nan"), None),
    ],
)
def test_values_that_no_network_works_with_are_named(tmp_path, suffix, name, value, said):
    """Of the tensors that are taken; others do no harm."""
    state = {key: tensor.clone() for key, tensor in small().encoder.net.state_dict().items()}
    state["fc.weight"] = torch.zeros(3)
    state[name].view(-1)[-1] = value
    path = tmp_path / f"weights{suffix}"
    (torch.save if suffix == ".pth" else safetensors.torch.save_file)(state, path)
    if said is None:
        assert load_weights(small(), read(str(path))).parameters
        return
    with pytest.raises(UserError) as error:
        load_weights(small(), read(str(path)))
    assert f"{path}: {said}" in str(error.value)


def test_whole_numbers_are_no_weights(tmp_path):
    """As in a file of quantised weights whose scales are elsewhere."""
    state = dict(small().encoder.net.state_dict())
    state["conv1.weight"] = state["conv1.weight"].to(torch.int8)
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"conv1\.weight is of an integer type in the file"):
        load_weights(small(), read(str(tmp_path / "w.pth")))


def test_an_archive_that_is_a_little_compressed_is_read(tmp_path):
    """Some tools do that, and it does no harm."""
    values = torch.randn(1000).round(decimals=1)
    torch.save({"a": values}, tmp_path / "stored.pth")
    stored = zipfile.ZipFile(tmp_path / "stored.pth")
    with zipfile.ZipFile(tmp_path / "packed.pth", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    assert (tmp_path / "packed.pth").stat().st_size < 0.8 * (tmp_path / "stored.pth").stat().st_size
    assert torch.equal(read(str(tmp_path / "packed.pth")).tensors["a"], values)
