"""Facts about configurations, recipes and the names in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import yaml

from oneway import config as configuration
from oneway.common.errors import UserError
from oneway.config import Config
from oneway.config.conflicts import SEGMENTERS
from oneway.config.recipes import RECIPES, configured, recipe
from oneway.methods import METHODS, VARIANTS, Method, VariantName
from processes import oneway


@pytest.mark.parametrize("name", RECIPES)
def test_a_configuration_survives_yaml(name):
    """What a run folder keeps is what the run used."""
    config = recipe(name)
    assert configuration.build(yaml.safe_load(config.to_yaml()), source="test") == config
    assert config.recipe == name


@pytest.mark.parametrize("name", RECIPES)
def test_the_settings_of_a_recipe_fit_each_other(name):
    """None of the combinations that are refused from a user comes from us."""
    configuration.build(recipe(name).model_dump(), source="test")


def test_flags_are_judged_together_with_their_recipe(tmp_path):
    """A flag that repeats what the recipe says is no contradiction to the defaults of another."""
    done = oneway("train", "cifar10", "--model.name", "wrn-28-2", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_name_has_its_row(tmp_path):
    """The names that can be chosen are the names of the tables, and help lists them."""
    assert set(get_args(VariantName)) == set(VARIANTS)
    for method in METHODS:
        configured("moons" if method == "simple-noise" else "streets", {"method": method}, source="test")
    shown = oneway("train", "--help", cwd=tmp_path, COLUMNS="200").stdout
    assert f"How images teach: {', '.join(METHODS)}." in " ".join(shown.replace("│", " ").split())


def test_a_method_of_your_own_can_be_chosen_by_its_name(monkeypatch):
    """Once it is in the table, and its α wins over the recipe's; a flag wins over both. Before, it is unknown."""
    with pytest.raises(UserError, match=r"'mine'. It should be .*'simple-phtps'.*where its file is imported"):
        configured("streets", {"method": "mine"}, source="test")
    monkeypatch.setitem(METHODS, "mine", Method("supervised", train={"alpha": 0.3}))
    assert recipe("streets").train.alpha != 0.3
    assert configured("streets", {"method": "mine"}, source="test").train.alpha == 0.3
    assert configured("streets", {"method": "mine", "train": {"alpha": 0.7}}, source="test").train.alpha == 0.7


def test_a_method_of_your_own_has_variants_and_a_given_teacher_where_its_row_says_so(monkeypatch):
    """Without the fields, `--variant` and `--teacher` are refused; with them, both are taken."""
    monkeypatch.setitem(METHODS, "mine", Method(lambda models, batch, settings: iter(()), perturb=("ph",)))
    configured("streets", {"method": "mine"}, source="test")
    with pytest.raises(UserError, match=r"variant 1w-cs with method mine: the method has no variants.*; use 1w-ct"):
        configured("streets", {"method": "mine", "variant": "1w-cs"}, source="test")
    with pytest.raises(UserError, match="does not learn from the clean predictions of one teacher"):
        configured("streets", {"method": "mine", "teacher": "runs/large"}, source="test")
    monkeypatch.setitem(METHODS, "mine", replace(METHODS["mine"], variants=True, taught=True))
    assert configured("streets", {"method": "mine", "variant": "1w-cs"}, source="test").variant == "1w-cs"
    assert configured("streets", {"method": "mine", "teacher": "runs/large"}, source="test").teacher is not None


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *((name, "segmentation") for name in ("streets", "folder", "camvid", "cityscapes")),
        *((name, "classification") for name in ("cifar10", "moons")),
    ],
)
def test_the_data_decide_the_task(name, task):
    """The network of each recipe is one for that task."""
    config = recipe(name)
    assert config.data.task == task
    assert (config.model.name in SEGMENTERS) == (task == "segmentation")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"train": {"iteration": 5}}, r"unknown key 'train.iteration'. Did you mean 'train.iterations'\?"),
        ({"data": {"path": "~nobody-at-all/photos"}}, "data.path: begins with the home folder of a user"),
        ({"model": {"weights": "~nobody-at-all/w.pth"}}, "model.weights: begins with the home folder of a user"),
        ({"metod": "supervised"}, r"unknown key 'metod'. Did you mean 'method'\?"),
        ({"train": {"iterations": 0}}, r"train.iterations: should be greater than 0 \(got 0\)"),
        ({"train": {"iterations": 10**30}}, r"iterations: should be less than or equal to 100000000 \(got 1000.*000\)"),
        ({"train": {"epochs": 1e300}}, r"train.epochs: should be less than or equal to 1000000 \(got 1e\+300\)"),
        ({"train": {"batch_labelled": 10**6}}, "train.batch_labelled: should be less than or equal to 65536"),
        ({"data": {"images": 10**9}}, r"data.images: should be less than or equal to 100000 \(got 1000000000\)"),
        ({"data": {"size": [64, 10**6]}}, "data.size: should be less than or equal to 4096"),
        ({"jitter": {"padding": 10**30}}, "jitter.padding: should be less than or equal to 32768"),
        ({"jitter": {"crop": [10**7, 64]}}, "jitter.crop: should be less than or equal to 32768"),
        ({"jitter": {"scale": [1, 1e300]}}, "jitter.scale: should be less than or equal to 64"),
        ({"perturb": {"deviation": 1e300}}, r"perturb.deviation: should be less than or equal to 1000 \(got 1e\+300\)"),
        ({"optimiser": {"learning_rate": 1e300}}, "optimiser.learning_rate: should be less than"),
        ({"train": {"alpha": float("nan")}}, "train.alpha"),
        ({"data": {"reduction": "0"}}, r"^test: data.reduction: should be 'auto', or greater than .* 1 \(got '0'\)\.$"),
        ({"data": {"reduction": 33}}, r"^test: data.reduction: should be 'auto', or less than .* 32 \(got 33\)\.$"),
        (
            {"data": {"reduction": "half"}},
            r"^test: data.reduction: should be 'auto', or a valid integer \(got 'half'\)\.$",
        ),
        ({"data": {"reduction": 3.5}}, r"^test: data.reduction: should be 'auto', or a valid integer \(got 3.5\)\.$"),
        ({"data": {"unlabelled": [1]}}, r"^test: data.unlabelled: should be a valid string, or .* \(got \[1\]\)\.$"),
        (
            {"jitter": {"crop": ["a", -1]}},
            "jitter.crop: should be a valid integer .*'a'.*\njitter.crop: .*greater than 0",
        ),
        ({"train": {"teacher_decay": 1.0}}, r"train.teacher_decay: should be less than 1 \(got 1.0\)"),
        ({"method": "simple-phtp"}, "method: unknown value 'simple-phtp'. Did you mean 'simple-phtps'"),
        ({"jitter": {"scale": [2, 1]}}, "jitter.scale: the lower end 2.0 is above the upper end 1.0"),
        ({"jitter": {"crop": [64]}}, "jitter.crop"),
        ({"train": 3}, "train: "),
        ({"method": "mt-phtps", "variant": "2w-c1"}, "^test: variant 2w-c1 with method mt-phtps: .*mean teacher"),
        ({"method": "mt-phtps", "variant": "2w-p2"}, "simple-… method"),
        (
            {"data": {"name": "cifar10"}, "model": {"name": "wrn-28-2"}, "method": "simple-cutmix", "variant": "1w-p2"},
            "cannot be unmixed",
        ),
        ({"method": "mt-cutmix-l2", "variant": "1w-cs"}, "hard targets carry no gradient"),
        ({"method": "vat-entmin", "variant": "1w-cs"}, "use 1w-ct"),
        ({"model": {"name": "mlp"}}, "use swiftnet, deeplabv2, deeplabv3plus or vit"),
        (
            {"data": {"name": "cifar10"}, "model": {"name": "wrn-28-2", "weights": "imagenet"}},
            "fills the encoder of swiftnet, deeplabv2, deeplabv3plus or vit",
        ),
        ({"jitter": {"crop": None}}, "jitter.crop is for images"),
        (
            {"data": {"name": "moons"}, "model": {"name": "mlp"}, "jitter": {"crop": None}, "method": "simple-phtps"},
            "perturbs images, and moons has points",
        ),
        (
            {"data": {"name": "moons"}, "model": {"name": "mlp"}, "jitter": {"crop": None}}
            | {"method": "supervised-phtps-aug"},
            "perturbs images, and moons has points",
        ),
        (
            {"method": "supervised-colour-cutmix-aug", "train": {"batch_labelled": 3}},
            "mixes pairs in half of a batch with labels; use --train.batch-labelled 4",
        ),
        (
            {"data": {"name": "cifar10"}, "model": {"name": "wrn-28-2"}, "method": "supervised-colour-cutmix-aug"},
            "mixes labels of pixels, and cifar10 has one class for each input",
        ),
        ({"train": {"batch-labelled": 4}}, "'train.batch-labelled'. Did you mean 'train.batch_labelled'"),
        ({"trian": {"alpha": 1}}, "'trian'. Did you mean 'train'"),
        ({"method": "mt-phtps", "train": {"teacher_norm": "batch"}}, "a mean teacher has averages"),
        (
            {"model": {"weights": "imagenet"}, "train": {"teacher_norm": "batch", "batch_norm": "frozen"}},
            "one uses the batch, the other never",
        ),
    ],
)
def test_what_is_wrong_is_said_with_key_and_value(tree, message):
    """Unknown keys get a suggestion, values out of range their range."""
    with pytest.raises(UserError, match=message):
        configuration.build(tree, source="test")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "streets",
            {"path": "photos"},
            "^test: streets is embedded and reads no folder .*photos.*`oneway train folder`",
        ),
        ("streets", {"unlabelled": "photos"}, "streets takes no further images"),
        (
            "camvid",
            {"resolution": "half"},
            "data.resolution and data.coarse are for Cityscapes, and the data are camvid",
        ),
    ],
)
def test_settings_that_a_reader_does_not_know_are_refused(name, changes, message):
    """Else someone trains on other images than they think. What has been trained with them can still be read."""
    with pytest.raises(UserError, match=message):
        configured(name, {"data": changes}, source="test")
    configuration.build(configuration.merge(recipe(name).model_dump(), {"data": changes}), source="test")


def test_a_change_of_what_does_not_exist_is_refused():
    """With the nearest name, as everywhere; values are checked when a run begins."""
    for changes, near in (({"train": {"alhpa": 1}}, "train.alpha"), ({"sed": 1}, "seed")):
        with pytest.raises(UserError, match=f"Did you mean '{near}'"):
            recipe("streets").changed(**changes)
    with pytest.raises(UserError) as refused:
        recipe("streets").changed(train={"alhpa": 1.0})
    known = str(refused.value).partition("Known: ")[2].removesuffix(".").split(", ")
    assert known == sorted(known), "the same words in every process"


def test_none_takes_back_what_a_recipe_has_set():
    """Where a setting may be absent; elsewhere it is a word like others."""
    tree = recipe("cityscapes-half").model_dump()
    assert tree["model"]["weights"] == "imagenet"
    merged = configuration.merge(tree, {"model": {"weights": "none"}, "train": {"iterations": "none"}})
    config = configuration.build(merged, source="test")
    assert config.model.weights is None
    assert config.train.iterations is None
    with pytest.raises(UserError, match=r"train\.alpha"):
        configuration.build({"train": {"alpha": "none"}}, source="test")


NO_CONFIGURATION = ["- a\n- b\n", "a: [", "a: !!python/object:os.system {}", "\xff", "train: {alpha: 1, alpha: 2}"]


@pytest.mark.parametrize("content", NO_CONFIGURATION)
def test_files_that_are_no_configuration_are_refused_by_name(tmp_path, content):
    """Lists, broken YAML, YAML that wants to build objects, and a setting that has two values."""
    file = tmp_path / "config.yaml"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"config\.yaml"):
        configuration.read_yaml(file)


def test_a_file_too_large_for_settings_is_refused_before_it_is_parsed(tmp_path):
    """With its size and the limit; what never ends is read no further than that. Up to the limit, all is read."""
    file = tmp_path / "config.yaml"
    file.write_text("seed: 3\n#" + "x" * (2**18 - 9))
    assert configuration.read_yaml(file) == {"seed": 3}
    file.write_text("seed: 3\n#" + "x" * 2**20)
    with pytest.raises(UserError, match=r"config\.yaml: 1048585 bytes are too many for YAML; at most 262144 are read"):
        configuration.read_yaml(file)
    with pytest.raises(UserError, match="/dev/zero: 262145 bytes are too many"):
        configuration.read_yaml(Path("/dev/zero"))


def test_merge_puts_leaves_over_leaves():
    """Sections merge, values replace, and the base stays as it was."""
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert configuration.merge(base, {"a": {"b": 9}}) == {"a": {"b": 9, "c": 2}, "d": 3}
    assert base["a"] == {"b": 1, "c": 2}


def test_every_field_says_what_it_is():
    """A flag without a help text would say nothing."""
    for key in Config().flat():
        section: type = Config
        *path, name = key.split(".")
        for part in path:
            section = section.model_fields[part].annotation  # type: ignore[attr-defined]
        assert section.model_fields[name].description, key  # type: ignore[attr-defined]
