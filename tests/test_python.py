"""The package from Python: settings, training, a trained model."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import oneway
from oneway.cli.app import app
from oneway.models.seed import seed_cpu
from test_methods import SEGMENTATION

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny run."""
    config = oneway.configure("streets", **SEGMENTATION)
    return oneway.fit(config, str(tmp_path_factory.mktemp("python") / "run"), quiet=True)


def test_fit_leaves_the_run_that_the_command_line_leaves(run):
    """Settings, result and validations, and a model that predicts a mask of the image's size."""
    assert run.config.train.iterations == 3
    assert run.config.recipe == "streets"
    assert 0 <= run.summary["value"] <= 100
    assert [line["miou"] for line in run.metrics() if "miou" in line][-1] == run.summary["value"]
    model = oneway.load(run.path)
    image = np.random.default_rng(0).integers(256, size=(40, 56, 3), dtype=np.uint8)
    found = model.predict(image)
    assert found.labels.shape == (40, 56)
    probabilities = torch.from_numpy(model.probabilities(image))
    assert probabilities.shape == (len(model.classes), 40, 56)
    torch.testing.assert_close(probabilities.sum(dim=0), torch.ones(40, 56))
    assert np.array_equal(probabilities.argmax(dim=0).numpy(), found.labels)
    assert len(repr(model)) < 1000
    shown = max(found.shares(), key=found.shares().get)
    assert re.fullmatch(rf"Prediction\(40×56: {shown} [\d.]+%.*\)", repr(found))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(found._repr_png_()))), np.asarray(found.overlay()))


def test_a_run_is_scored_as_the_command_line_scores_it(run, capsys):
    """A run may be given itself, or its folder."""
    words = ["eval", str(run.path), "--json", "--mirror"]
    app(words, print_error=False, exit_on_error=False, result_action="return_value")
    expected = json.loads(capsys.readouterr().out)
    for given in (run, run.path, str(run.path)):
        scores = oneway.evaluate(given, mirror=True, quiet=True)
        assert json.loads(json.dumps({**scores, "run": expected["run"]})) == expected
    assert oneway.evaluate(run, quiet=True)["value"] == run.summary["value"]
    assert oneway.load(run).classes == tuple(expected["per_class"])
    assert repr(run) == f"Run({str(run.path)!r})"


def test_a_run_is_reported_and_exported_as_by_the_command_line(run, tmp_path):
    """Each returns what it wrote, and says nothing where it is asked to be quiet."""
    page = oneway.report(run, quiet=True)
    assert page == run.path / "report.html"
    assert f"{run.summary['value']:.1f}" in page.read_text(encoding="utf-8")
    assert oneway.report(run, out=str(tmp_path / "page.html"), quiet=True) == tmp_path / "page.html"
    file = oneway.export(run, tmp_path / "model.pt2", quiet=True)
    assert file.is_file()
    assert (tmp_path / "model.pt2.md").is_file()
    image = np.random.default_rng(0).integers(256, size=(32, 64, 3), dtype=np.uint8)
    exported = torch.export.load(file).module()(torch.from_numpy(image)[None])[0].numpy()
    assert (exported == oneway.load(run).predict(image).labels).mean() > 0.999
    with pytest.raises(oneway.UserError, match=r"model\.xyz"):
        oneway.export(run, tmp_path / "model.xyz")


def test_fit_can_be_called_again(run):
    """With `resume` it returns a run that has ended as it is; without, it refuses the folder."""
    written = (run.path / "summary.json").stat().st_mtime_ns
    assert oneway.fit(run.config, run.path, resume=True, quiet=True).summary == run.summary
    with pytest.raises(oneway.UserError, match="--resume"):
        oneway.fit(run.config, run.path, quiet=True)
    assert (run.path / "summary.json").stat().st_mtime_ns == written


def test_the_loss_of_the_page_works_in_a_loop_of_ones_own():
    """It teaches a student what a teacher says of the clean images, with the same numbers for the same step."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def " in block)
    found = {}
    exec(code, found)
    x = torch.rand(4, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    with seed_cpu(0):
        teacher, student = (torch.nn.Conv2d(3, 5, 8, stride=4, padding=2) for _ in range(2))
    teacher.bias.data += torch.arange(5)  # it says much the same of every pixel, which is learnt in a few steps
    optimiser = torch.optim.SGD(student.parameters(), 0.1)

    @torch.no_grad()
    def mean_over_steps() -> float:
        return float(sum(found["consistency"](teacher, student, x, step) for step in range(100, 110)) / 10)

    begun = mean_over_steps()
    assert mean_over_steps() == begun
    assert found["consistency"](teacher, student, x, 101) != found["consistency"](teacher, student, x, 100)
    for step in range(30):
        optimiser.zero_grad()
        found["consistency"](teacher, student, x, step).backward()
        optimiser.step()
    assert teacher.weight.grad is None
    assert mean_over_steps() < begun / 2


def test_training_works_in_any_thread(tmp_path):
    """Only the main thread may handle signals; another one trains all the same."""
    runs = []
    config = oneway.configure("moons", train={"iterations": 3, "device": "cpu"})
    thread = threading.Thread(target=lambda: runs.append(oneway.fit(config, tmp_path / "run", quiet=True)))
    thread.start()
    thread.join()
    assert [run.summary["iterations"] for run in runs] == [3]


def test_two_threads_train_what_each_trains_alone(tmp_path):
    """At the same time, from other seeds: the weights are the same to the bit."""

    def fit(seed, name):
        config = oneway.configure("streets", **SEGMENTATION, seed=seed)
        oneway.fit(config, tmp_path / f"{name} {seed}", quiet=True)

    for seed in (1, 2):
        fit(seed, "alone")
    threads = [threading.Thread(target=fit, args=(seed, "beside")) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    models = {run.name: (run / "model.safetensors").read_bytes() for run in tmp_path.iterdir()}
    for seed in (1, 2):
        assert models[f"beside {seed}"] == models[f"alone {seed}"]
    assert models["alone 1"] != models["alone 2"]


def test_a_preset_is_that_of_the_command_line(tmp_path, capsys):
    """What is given beside it wins, and a crop of one's own is kept; the data may be named by their path alone."""
    flags = "--preset cpu --seed 3 --jitter.crop 96 96 --dry-run"
    words = ["train", "folder", "--data", str(tmp_path), *flags.split()]
    app(words, print_error=False, exit_on_error=False, result_action="return_value")
    config = oneway.configure("folder", preset="cpu", data=tmp_path, seed=3, jitter={"crop": (96, 96)})
    assert config.to_yaml() == capsys.readouterr().out
    assert oneway.configure("folder", data=str(tmp_path)) == oneway.configure("folder", data={"path": tmp_path})
    for recipe, preset in (("folder", "quick"), ("streets", "cpu")):
        with pytest.raises(oneway.UserError, match=preset):
            oneway.configure(recipe, preset=preset)


def test_settings_are_checked():
    """As on the command line: names, values, and what makes no sense together."""
    with pytest.raises(
        oneway.UserError, match=r"configure: unknown key 'train.iteration'. Did you mean 'train.iterations'"
    ):
        oneway.configure("streets", train={"iteration": 5})
    with pytest.raises(oneway.UserError, match="mean teacher"):
        oneway.configure("streets", method="mt-phtps", variant="2w-c1")
    with pytest.raises(oneway.UserError, match="streets"):
        oneway.configure("street")


def test_importing_the_package_loads_no_pytorch():
    """And no NumPy or pydantic: it takes no time, and `from oneway.ops import …` loads only what it needs."""
    check = (
        "import sys, oneway; oneway.load, oneway.UserError; assert not {'torch', 'numpy', 'pydantic'} & {*sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
