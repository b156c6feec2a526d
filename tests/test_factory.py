"""Facts about networks of the user's own: what they must satisfy, and how it is said when they do not."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import safetensors.torch
import torch
from rich.console import Console

import oneway as oneway_api
from oneway import config as configuration
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config import Model, Optimiser, confirm_factory
from oneway.config.recipes import recipe
from oneway.engine.optim import optimiser_for
from oneway.methods import METHODS
from oneway.models import build
from oneway.runs import open_run
from oneway.tools.networks import locate_weights, prepare
from oneway.tools.train import train
from own_method import codes
from processes import oneway
from reliability.guards import write_data
from small_runs import QUIET, assert_resumes, small_streets, stub

PAGE = Path(__file__).parent.parent / "docs" / "models.md"

NETWORKS = """
import torch
from torch import nn
from oneway.models import ImageModel

class Segmenter(ImageModel):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, classes, 1)
        )
    def forward(self, x):
        return self.layers(self.normalise(x))

def classifier(classes):
    return nn.Sequential(nn.Conv2d(3, classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

class Divided(Segmenter):
    def forward(self, x):
        assert x.shape[-1] % 32 == 0, "the width must be a multiple of 32"
        return super().forward(x)

class Wrapped(Segmenter):
    def forward(self, x):
        return {"out": super().forward(x)}

class Infinite(Segmenter):
    def forward(self, x):
        return super().forward(x) / 0

class Spare(Segmenter):
    def __init__(self, classes):
        super().__init__(classes)
        self.spare = nn.Linear(2, 2)
        self.layers[1].requires_grad_(False)

class Layered(Segmenter):
    def __init__(self, classes):
        super().__init__(classes)
        self.encoder = Encoder(3, 4, 3, padding=1)
        self.auxiliary = nn.Conv2d(4, classes, 1)
    def forward(self, x):
        features = self.encoder(x)
        self.auxiliary(features)
        return self.layers(self.normalise(x) + features[:, :3])

class Encoder(nn.Conv2d):
    def layers_behind(self):
        return {self.weight: 2, self.bias: 1}

class Two(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        self.first, self.second = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 6, 3, 2, 1)
    def forward(self, x):
        first = self.first(x)
        return [first, self.second(first.relu())]

class Encoding(ImageModel):
    def __init__(self, classes, channels=(4, 6)):
        super().__init__()
        self.encoder, self.decoder = Two(channels), nn.Conv2d(10, classes, 1)
    def forward(self, x):
        fine, coarse = self.encoder(self.normalise(x))
        return self.decoder(torch.cat((fine, nn.functional.interpolate(coarse, fine.shape[-2:])), dim=1))

def wrong_channels(classes):
    return Encoding(classes, (4, 5))

def dropping(classes):
    return nn.Sequential(nn.Dropout2d(), Segmenter(classes))

class Stumbling(Segmenter):
    passes = 0
    def forward(self, x):
        self.passes += self.training
        return super().forward(x) / (self.passes != 3)

def evaluating(classes):
    return Segmenter(classes).eval()

def frozen(classes):
    return Segmenter(classes).requires_grad_(False)

def other(classes):
    return Segmenter(classes + 1)

def nothing(classes):
    return None

def failing(classes):
    raise ValueError("out of ideas")

constant = 3
"""


@pytest.fixture
def networks(tmp_path, monkeypatch) -> str:
    """A file beside the user, under a name of its own."""
    name = f"networks_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    return name


def test_a_network_is_found_beside_the_user_and_leaves_no_remark(networks):
    """Built from its class count, with weights that are a function of the seed; examined without a trace."""
    config = Model(factory=f"{networks}:Segmenter")
    prepared = prepare(config, 5, 0, "segmentation", (64, 64))
    assert prepared.network.eval()(torch.rand(1, 3, 33, 47)).shape == (1, 5, 17, 24)
    assert (prepared.pretrained, prepared.remarks) == ([], [])
    again = build(config, 5, seed=0).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in prepared.network.state_dict().items())
    assert not torch.equal(again["layers.0.weight"], build(config, 5, seed=1).state_dict()["layers.0.weight"])
    assert all(parameter.grad is None for parameter in prepared.network.parameters())


def test_a_network_may_classify(networks):
    """One prediction for an image, where that is the task."""
    prepare(Model(factory=f"{networks}:classifier"), 10, 0, "classification", (32, 32))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no.such.package:function",
            r"no\.such\.package:function: cannot be imported \(ModuleNotFoundError: No module",
        ),
        ("HERE:missing", r"cannot be imported \(AttributeError: .*has no attribute 'missing'"),
        ("HERE:constant", "cannot be called. Name a function"),
        ("HERE:failing", r"fails for 5 classes \(ValueError: out of ideas, .*networks_\d+\.py:\d+\)"),
        ("HERE:nothing", "returns a NoneType. Return a torch.nn.Module"),
        ("HERE:other", r"returns 2×6×32×32 for two images. Return 2×5×h×w logits"),
        ("HERE:classifier", r"returns 2×5 for two images. Return 2×5×h×w logits"),
        ("HERE:Wrapped", "returns a dict for two images"),
        ("HERE:Infinite", "not finite"),
        ("HERE:frozen", "no gradient reaches a parameter"),
        ("torch.nn:Identity", r"returns 2×3×64×64 for two images"),
    ],
)
def test_what_cannot_train_is_refused_in_a_line(networks, name, message):
    """Before anything is read or written; where the user's code fails, with its place."""
    with pytest.raises(UserError, match=message):
        prepare(Model(factory=name.replace("HERE", networks)), 5, 0, "segmentation", (64, 64))


def test_a_file_that_cannot_be_read_names_its_line(networks, tmp_path):
    """A mistake in the user's file is the user's to find."""
    (tmp_path / f"broken_{networks}.py").write_text("import torch\n1 / 0\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot be imported \(ZeroDivisionError: division by zero, .*\.py:2\)"):
        build(Model(factory=f"broken_{networks}:function"), 5, 0)


def test_what_can_train_but_looks_odd_is_remarked_on(networks):
    """Parameters that never learn, and sizes that a network refuses."""
    (frozen, unreached) = prepare(Model(factory=f"{networks}:Spare"), 5, 0, "segmentation", (64, 64)).remarks
    assert "2 parameters do not require gradients" in frozen
    assert "no gradient reaches the parameters spare.weight and spare.bias" in unreached
    (size,) = prepare(Model(factory=f"{networks}:Divided"), 5, 0, "segmentation", (64, 64)).remarks
    assert "fails on one image of 65×67 pixels (the width must be a multiple of 32)" in size


def test_a_factory_trains(networks, tmp_path):
    """Whatever the recipe's network would be; the model that is kept names its factory."""
    out = tmp_path / "run"
    config = small_streets(model={"factory": f"{networks}:Segmenter"})
    train(config, out, resume=False, console=QUIET)
    assert open_run(out).config.model.factory == f"{networks}:Segmenter"
    with (out / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert json.loads(header["__metadata__"]["oneway"])["model"]["factory"] == f"{networks}:Segmenter"


def test_the_command_of_the_page_trains_a_network_that_the_default_method_refuses(networks, tmp_path):
    """With another network in the same words, and fewer and smaller steps; the refusal names the page's method."""
    (line,) = (line for line in PAGE.read_text().splitlines() if "--model.factory networks:Unet" in line)
    line = line.replace("photos", str(write_data(tmp_path))).replace("networks:Unet", f"{networks}:Segmenter")
    small = "--jitter.crop 32 32 --train.iterations 1 --train.batch-labelled 2 --train.batch-unlabelled 2 --out"
    words = f"{line} {small}".split()[1:]
    app([*words, "page"], result_action="return_value")
    assert open_run(Path("page")).config.method == "mt-colour-cutmix"
    at = words.index("--method")
    with pytest.raises(UserError, match=r"Segmenter has no `encoder`.*another --method, such as mt-colour-cutmix"):
        app([*words[:at], *words[at + 2 :], "default"], result_action="return_value")


@pytest.mark.parametrize(
    ("network", "method", "message"),
    [
        ("Segmenter", "mt-colour-cutmix-drop", "Segmenter has no `encoder`"),
        ("Segmenter", "cac", "Segmenter has no `head`"),
        ("Segmentor", "mt-colour-cutmix", "cannot be imported"),
        ("Segmenter", "mt-phtps", "has no `encoder` with a method `layers_behind`"),
    ],
)
def test_a_network_that_does_not_suit_is_refused_before_images_are_decoded(
    networks, tmp_path, monkeypatch, network, method, message
):
    """Which may take minutes; the classes are known from the files."""
    monkeypatch.setattr("oneway.tools.opening._read_images", lambda *_: pytest.fail("images were read"))
    named = {"name": "swiftnet", "factory": f"{networks}:{network}"}
    config = small_streets(method=method, model=named, optimiser={"layer_decay": 0.9})
    with pytest.raises(UserError, match=message):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run").exists()


def test_a_network_that_comes_in_evaluation_mode_is_trained(networks, tmp_path):
    """As those from hubs do: its statistics learn like any other's."""
    train(small_streets(model={"factory": f"{networks}:evaluating"}), tmp_path / "run", resume=False, console=QUIET)
    weights = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert weights["layers.1.num_batches_tracked"] == 4
    assert weights["layers.1.running_mean"].any()


def test_dropout_follows_the_seed(networks, tmp_path):
    """A run is resumed and repeated to the bit, whatever the user has drawn before; the next numbers stay the same."""
    config = small_streets(method="mt-phtps", model={"factory": f"{networks}:dropping"}, train={"checkpoint_every": 2})
    assert not prepare(config.model, 5, 0, "segmentation", (64, 64)).remarks
    expected, before = assert_resumes(config, tmp_path / "run"), torch.random.get_rng_state()
    torch.rand(3)
    other = config.changed(seed=1)
    for which, out in ((config, "again"), (other, "other")):
        train(which, tmp_path / out, resume=False, console=QUIET)
    weights = [safetensors.torch.load_file(tmp_path / out / "model.safetensors") for out in ("again", "other")]
    name = "1.layers.0.weight"
    assert torch.equal(weights[0][name], expected[f"model.{name}"])
    assert not torch.equal(weights[1][name], weights[0][name])
    torch.random.set_rng_state(before)
    drawn = torch.rand(3)
    torch.random.set_rng_state(before)
    train(config.changed(train={"iterations": 1}), tmp_path / "short", resume=False, console=QUIET)
    assert torch.equal(torch.rand(3), drawn)


def test_an_auxiliary_head_learns_by_the_method_of_the_page(networks, tmp_path):
    """Beside the main one, from the labels; what the network returns is unchanged."""
    factory, found = f"{networks}:Layered", {}
    with patch.dict(METHODS):
        exec(codes()[3], found)
        config = small_streets(method="deep", model={"factory": factory}, train={"log_every": 1})
        run = oneway_api.fit(config, tmp_path / "run", quiet=True)
    before = build(config.model, 9, seed=0).state_dict()
    after = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert not torch.equal(after["auxiliary.weight"], before["auxiliary.weight"])
    assert run.metrics()[0].keys() >= {"supervised", "auxiliary", "consistency"}
    assert found["METHODS"] is METHODS


def test_part_of_a_network_may_come_from_a_file_and_learn_at_rates_of_its_own(networks, tmp_path):
    """By the names of its tensors; its encoder says how far from the decoder each parameter is."""
    config = Model(factory=f"{networks}:Layered", weights=str(tmp_path / "part.pth"))
    network = build(config, 5, seed=1)
    torch.save({f"encoder.{name}": value for name, value in network.encoder.state_dict().items()}, config.weights)
    prepared = prepare(config, 5, 0, "segmentation", (32, 32), locate_weights(config))
    assert prepared.filled == ("encoder.weight", "encoder.bias")
    assert torch.equal(prepared.network.encoder.weight, network.encoder.weight)
    assert "It lacks layers.0.weight, layers.0.bias, layers.1.weight and" in prepared.remarks[-1]
    rates = Optimiser(learning_rate=1.0, learning_rate_pretrained=0.1, layer_decay=0.5)
    groups = optimiser_for([prepared.network], rates, prepared.pretrained).param_groups
    found = {id(each): group["initial_lr"] for group in groups for each in group["params"]}
    parameters = prepared.network.encoder.weight, prepared.network.encoder.bias, prepared.network.auxiliary.weight
    assert [found[id(parameter)] for parameter in parameters] == [0.025, 0.05, 1.0]


@pytest.mark.parametrize("method", ["mt-colour-cutmix-drop", "unimatch", "unimatch-v2"])
def test_features_of_an_own_encoder_are_dropped(networks, tmp_path, method):
    """It says how many channels each of its maps has; where that is wrong, it is said."""
    config = small_streets(method=method, model={"factory": f"{networks}:Encoding"})
    train(config, tmp_path / "run", resume=False, console=QUIET)
    assert (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(UserError, match=r"`channels` are \(4, 5\), and its feature maps have \(4, 6\)"):
        train(config.changed(model={"factory": f"{networks}:wrong_channels"}), tmp_path / "2", False, QUIET)


def test_steps_that_were_skipped_are_told(networks, tmp_path):
    """In the summary, in the lines that are logged, and in a sentence."""
    told = Console(record=True, quiet=False, file=io.StringIO())
    config = small_streets(method="supervised", model={"factory": f"{networks}:Stumbling"})
    summary = train(config, tmp_path / "run", resume=False, console=told)
    assert summary["skipped_steps"] == 1
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("skipped") for line in lines if "learning_rate" in line] == [None, 1]
    assert "1 of 4 steps were not finite, and were skipped" in told.export_text()


def test_code_that_a_file_names_is_run_for_a_user_who_names_it_too():
    """A model may come from anyone."""
    file = Path("model.safetensors")
    confirm_factory(None, None, file)
    confirm_factory("package:function", "package:function", file)
    for given in (None, "package:other"):
        with pytest.raises(UserError, match=r"model\.safetensors: .*--model\.factory package:function"):
            confirm_factory("package:function", given, file)


def test_a_run_is_continued_by_its_folder(tmp_path, capsys):
    """With its own settings: the recipe's weights are for an encoder that such a network has not."""
    config = recipe("folder").changed(model={"factory": "package:function", "weights": None})
    stub(tmp_path / "run", config.changed(data={"path": tmp_path}), 40.0)
    words = ["train", str(tmp_path / "run"), "--resume", "--dry-run"]
    with pytest.raises(UserError, match=r"say so with --model\.factory package:function"):
        app(words, result_action="return_value")
    app([*words, "--model.factory", "package:function"], result_action="return_value")
    assert "factory: package:function" in capsys.readouterr().out
    with pytest.raises(UserError, match="a run, and not a recipe"):
        app([*words, "--compare"], result_action="return_value")


@pytest.mark.parametrize(
    "name", ["package", "package.module", ":function", "a/b.py:function", "a:b:c", "a:b()", "os:system "]
)
def test_a_factory_has_a_module_and_a_function(name):
    """What is neither is refused before anything is imported."""
    with pytest.raises(UserError, match=r"model\.factory: should be package\.module:function \(got"):
        configuration.build({"model": {"factory": name}}, source="test")


def test_points_have_no_factory():
    """Networks from elsewhere are for images."""
    tree = recipe("moons").model_dump() | {"model": {"name": "mlp", "factory": "a:b"}}
    with pytest.raises(UserError, match="moons has points"):
        configuration.build(tree, source="test")


@pytest.mark.slow
def test_a_run_with_a_factory_is_opened_by_naming_it_again(networks, tmp_path):
    """To train, evaluate, report, continue and repeat: what a folder names is not run for anyone else."""
    factory = f"{networks}:Segmenter"
    small = "--data.size 32 64 --jitter.crop 32 64 --data.images 8 --train.iterations 2 --labels 4 --train.device cpu"
    done = oneway("train", "streets", "--model.factory", factory, "--out", "run", *small.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    naming = ("--model.factory", factory)
    for words in (
        ("eval", "run"),
        ("report", "run"),
        ("train", "streets", "--resume", "--out", "run"),
        ("train", "streets", "--config", "run/config.yaml", "--dry-run"),
    ):
        refused = oneway(*words, cwd=tmp_path)
        assert (refused.returncode, f"--model.factory {factory}" in refused.stderr) == (1, True), words
        allowed = oneway(*words, *naming, cwd=tmp_path)
        assert allowed.returncode == 0, (words, allowed.stderr)
