"""What unlabelled images brought: trained, said and asked for."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from rich.console import Console

import forks
from files import change_json, contents
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config import Config, build
from oneway.config.recipes import RECIPES, configured, recipe
from oneway.methods import METHODS
from oneway.runs import open_run
from oneway.tools import compare as compare_module
from oneway.tools import quickstart as quickstart_module
from oneway.tools.baseline import is_baseline_of, train_command, with_method
from oneway.tools.report.cautions import rests_on_few
from oneway.tools.report.differences import signed
from oneway.tools.report.gain import describe_gain
from oneway.tools.report.reading import read_runs
from processes import forked
from small_runs import SMALL, SMALL_FLAGS, small_streets
from test_check_cli import write_folder


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> SimpleNamespace:
    """The folder of a comparison that has ended, and what it printed."""
    folder = tmp_path_factory.mktemp("compared")
    words = ["--method", "fixmatch", "--seed", "3", "--out", "both"]
    done = forked("train", "streets", "--compare", *SMALL_FLAGS, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(out=folder / "both", said=done.stdout)


def test_a_comparison_is_no_run_to_continue(both):
    """What goes on with one of its runs, or both, is said; they are no images to train on."""
    with pytest.raises(UserError, match="holds runs, and is not a recipe") as refused:
        app(["train", str(both.out), "--resume"], result_action="return_value")
    assert f"oneway train {both.out / 'fixmatch'} --resume" in str(refused.value)
    assert f"oneway train streets --compare --resume --out {both.out}" in str(refused.value)


def test_two_runs_differ_in_the_method_alone(both):
    """The same seed, labelled images, length and start; what the method brings stays with it; one page about both."""
    supervised, other = (open_run(both.out / name) for name in ("supervised", "fixmatch"))
    assert is_baseline_of(supervised.config, other.config)
    assert supervised.split == other.split
    keys = [key for key, value in supervised.config.flat().items() if value != other.config.flat()[key]]
    assert keys == ["method", "train.confidence", "train.batch_norm", "train.teacher_norm"]
    values = [run.summary["value"] for run in (supervised, other)]
    gain, shown = values[1] - values[0], round(round(values[1], 1) - round(values[0], 1), 1) + 0.0
    kept = json.loads((both.out / "summary.json").read_text())
    low, high = kept.pop("gain_interval")
    assert low < gain < high
    assert kept == {"supervised": values[0], "fixmatch": values[1], "gain": gain}
    line = f"4 labels: {values[0]:.1f} → {values[1]:.1f} % mIoU ({shown:+.1f} with unlabelled images)"
    worse = ["The better model is that of labels alone: both/supervised"] if shown < 0 else []
    with_others = (
        f"With other validation images like these, the difference would lie between {signed(low)} and {signed(high)} "
        f"(95\N{NO-BREAK SPACE}% interval){': too close to call' if low <= 0 <= high else ''}."
    )
    said = both.said.splitlines()[-4 - len(worse) :]
    assert "has the lowest IoU" in said.pop(2)
    assert said == [line, with_others, *worse, "Report: both/report.html"]
    page = (both.out / "report.html").read_text()
    assert page.count("with the same labels, seed and number of iterations") == 1
    assert "the same 4 labels" not in page, "what was gained is said twice"


def test_two_trainings_are_announced_and_what_they_share_is_said_once(tmp_path):
    """A reader knows how much is still to come; and where two images validate, that the verdict means little."""
    write_folder(tmp_path / "photos")
    done = forked(
        *"train folder --compare --method fixmatch --data photos --out both --model.weights none".split(),
        *"--model.width 0.125".split(),
        *"--jitter.crop 32 32 --train.batch-labelled 2 --train.batch-unlabelled 2 --train.iterations 2".split(),
        cwd=tmp_path,
        COLUMNS="200",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Two trainings: fixmatch, then supervised."
    assert sum("are held out to validate" in line for line in lines) == 1
    assert sum("training images" in line for line in lines) == 1
    assert [line[:6] for line in lines if "validation mIoU" in line] == ["1 of 2"] * 2 + ["2 of 2"] * 2
    caution = "Every number here rests on 2 validation images, too few to mean much"
    assert sum(caution in line for line in lines) == 1
    assert caution in (tmp_path / "both" / "report.html").read_text()


def test_a_report_about_the_folder_of_both_is_about_both(both, tmp_path):
    """In that folder, as the comparison has written it; other folders of runs have to be named one by one."""
    out = Path(shutil.copytree(both.out, tmp_path / "both"))
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert forked("report", out, cwd=tmp_path).stdout.split()[-1] == str(out / "report.html")
    assert (out / "report.html").read_bytes() == before.replace(b"both/", f"{out}/".encode())
    (out / "fixmatch").rename(out / "mine")
    assert "It holds runs; name one" in forked("report", out, cwd=tmp_path).stderr


def test_a_comparison_that_was_stopped_says_how_to_go_on(tmp_path):
    """Ctrl-C ends both runs, and the command that continues both is printed."""
    words = " ".join(SMALL_FLAGS).replace("--train.iterations 4", "--train.iterations 100000").split()
    job = forks.start(tmp_path, command=["train", "streets", "--compare", *words, "--out", "both"])
    log, end = tmp_path / "both" / "simple-phtps" / "metrics.jsonl", time.monotonic() + 120
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < end, job.error
        time.sleep(0.01)
    os.kill(job.process, signal.SIGINT)
    assert job.wait() == 130
    assert "oneway train streets --compare --resume --out both" in job.error
    assert not (tmp_path / "both" / "supervised").exists()


def test_a_comparison_is_continued_as_one(both, tmp_path):
    """With no setting named again: the run that has ended stays, the other is trained as if nothing had happened."""
    out = Path(shutil.copytree(both.out, tmp_path / "both"))
    shutil.rmtree(out / "supervised")
    before = contents(out / "fixmatch")
    done = forked("train", "streets", "--compare", "--resume", "--out", out, cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr
    assert contents(out / "fixmatch") == before
    models = [folder / "supervised" / "model.safetensors" for folder in (out, both.out)]
    assert models[0].read_bytes() == models[1].read_bytes()
    assert done.stdout.splitlines()[-2] == both.said.splitlines()[-2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--out both", "both/supervised: holds a run already. Continue it with --resume"),
        ("--out both/supervised", "both/supervised: holds a run, whose summary would be overwritten"),
        (
            "--out new --method supervised",
            "supervised uses no unlabelled images, and would be compared with labels alone",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(words, message, both, tmp_path):
    """Before anything is trained."""
    out = Path(shutil.copytree(both.out, tmp_path / "both"))
    shutil.rmtree(out / "fixmatch")
    before = sorted(tmp_path.rglob("*"))
    done = forked("train", "streets", "--compare", *words.split(), cwd=tmp_path)
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("values", "further", "line"),
    [
        ((44.42, 46.64), 7, "50 labels: 44.4 → 46.6 % mIoU (+2.2 with unlabelled images)"),
        ((44.42, 46.64), 0, "50 labels: 44.4 → 46.6 % mIoU (+2.2 and every image is labelled)"),
        ((54.4, 52.7), 7, "50 labels: 54.4 → 52.7 % mIoU (-1.7 with unlabelled images)"),
    ],
)
@pytest.mark.parametrize("validating", [2, 10])
def test_a_loss_is_called_one(values, further, line, validating, monkeypatch, tmp_path, capsys):
    """Whatever the order in which the two were trained."""
    found = dict(zip(("supervised", "simple-phtps"), values, strict=True))
    iterations = 100 * validating

    def facts(folder):
        run = {"path": folder, "config": small_streets(method=folder.name), "value": found[folder.name]}
        labels = {"labelled": range(50), "further": further, "iterations": iterations}
        scores = {"metric": "miou", "metric_name": "mIoU", "validation_samples": validating}
        return SimpleNamespace(**run, **labels, **scores, by_image=None, drawn=None, groups=(), per_class={})

    monkeypatch.setattr(compare_module, "train", lambda *_: None)
    monkeypatch.setattr(compare_module, "read_runs", lambda folders: [facts(folder) for folder in folders])
    monkeypatch.setattr(compare_module, "write_report", lambda runs, out, factory, **more: out)
    configs = [small_streets(method=method) for method in found]
    for number, order in enumerate((configs, configs[::-1])):
        (out := tmp_path / str(number)).mkdir()
        compare_module.compare(order, out, Console())
        said = " ".join(capsys.readouterr().out.split())
        better = f" The better model is that of labels alone: {out / 'supervised'}" if values[0] > values[1] else ""
        start = f"Two trainings: {order[0].method}, then {order[1].method}."
        caution = f" {rests_on_few([facts(out / method) for method in found])}" if validating < 10 else ""
        short = " 200 iterations are few: labels alone learn faster at first. Compare 1,000 or more."
        caution = f"{short if better and validating < 10 else ''}{caution}"
        assert said == f"{start} {line}{better}{caution} Report: {out / 'report.html'}"
        assert list(json.loads((out / "summary.json").read_text())) == [*found, "gain", "gain_interval"]


def test_the_quickstart_is_a_comparison(monkeypatch):
    """Of the embedded scenes with `supervised` first, as before there were comparisons."""
    asked = []
    monkeypatch.setattr(quickstart_module, "compare", lambda *arguments: asked.append(arguments))
    console = Console(quiet=True)
    quickstart_module.quickstart(Path("x"), 5, console)
    assert asked == [
        (
            [configured("streets", {"method": m, "seed": 5}, "") for m in ("supervised", "simple-phtps")],
            Path("x"),
            console,
        )
    ]


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.supervised])
def test_every_method_has_a_baseline(name, method):
    """A configuration that is valid, of the same length, and counts as its baseline, on every recipe that allows it."""
    try:
        config = configured(name, {"method": method, "seed": 2}, "test")
    except UserError:
        return  # not on this recipe
    baseline = with_method(config)
    assert build(baseline.model_dump(), "test") == baseline
    assert is_baseline_of(baseline, config)
    assert (baseline.train.iterations, baseline.train.epochs) == (config.train.iterations, config.train.epochs)
    assert (baseline.seed, baseline.labels) == (2, config.labels)
    assert baseline.train.balance == config.train.balance


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"train": {"alpha": 0.1, "batch_norm": "both", "batch_unlabelled": 3}}, True),
        ({"perturb": {"geometric": 2.0}, "data": {"path": Path("/elsewhere")}}, True),
        ({"seed": 1}, False),
        ({"model": {"width": 0.5}}, False),
        ({"optimiser": {"learning_rate": 1e-3}}, False),
        ({"train": {"batch_norm": "frozen"}}, False),
        ({"train": {"batch_labelled": 4}}, False),
        ({"train": {"balance": "frequency"}}, False),
        ({"data": {"seed": 4}}, False),
    ],
    ids=str,
)
def test_a_baseline_differs_in_nothing_that_is_learnt(changes, counts):
    """What concerns unlabelled images alone may differ; two with unlabelled images are no pair, nor two without."""
    supervised = recipe("folder", "supervised")
    assert is_baseline_of(supervised, recipe("folder", "mt-phtps").changed(**changes)) == counts
    assert not is_baseline_of(supervised, supervised)
    assert not is_baseline_of(recipe("folder", "simple-phtps"), recipe("folder", "mt-phtps"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"labels": "1/4", "seed": 7, "data": {"path": Path("/some where/photos"), "holdout": 0.25}},
        {"jitter": {"crop": (96, 128), "fit": False, "flip": False}, "train": {"iterations": 50, "device": "cpu"}},
        {"train": {"iterations": None, "epochs": 3.0}, "data": {"skip_unreadable": True}},
        {"model": {"weights": None, "backbone": "resnet34"}, "optimiser": {"betas": (0.8, 0.95)}},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["supervised", "fixmatch"])
def test_a_command_says_every_setting(changes, method, capsys):
    """Pasted, it gives the configuration that it was made of."""
    config = recipe("folder", method).changed(**changes)
    words = shlex.split(train_command(config, "--dry-run"))
    assert words[0] == "oneway"
    app(words[1:], print_error=False, exit_on_error=False, result_action="return_value")
    printed = yaml.safe_load(capsys.readouterr().out)
    assert Config.model_validate(printed) == config


@pytest.fixture
def copies(two_runs, tmp_path) -> list[Path]:
    """A supervised and a semi-supervised run, for a test to change."""
    return [Path(shutil.copytree(run, tmp_path / run.name)) for run in two_runs]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((44.42, 46.64), "12 unlabelled images brought +2.2 points of mIoU: supervised 44.4, simple-phtps 46.6, with"),
        ((54.4, 52.7), "12 unlabelled images cost 1.7 points of mIoU: supervised 54.4, simple-phtps 52.7, with the"),
        ((50.01, 49.99), "12 unlabelled images changed nothing: 0.0 points of mIoU"),
    ],
)
def test_a_report_says_what_unlabelled_images_brought(values, said, copies):
    """In whichever order the runs are named."""
    for folder, value in zip(copies, values, strict=True):
        change_json(folder / "summary.json", value=value)
    for order in (copies, copies[::-1]):
        found = describe_gain(read_runs(order))
        assert found.text.startswith(said)
        assert not found.commands


def test_several_runs_are_each_compared(copies, tmp_path):
    """With the one baseline among them."""
    third = Path(shutil.copytree(copies[1], tmp_path / "third"))
    for folder, value in zip((*copies, third), (44.4, 46.6, 43.4), strict=True):
        change_json(folder / "summary.json", value=value)
    said = describe_gain(read_runs([third, *copies])).text
    assert said.startswith("What unlabelled images brought, in points of mIoU over labels alone with the same labels")
    assert "third −1.0" in said
    assert "simple-phtps +2.2." in said


def test_a_run_of_another_length_is_no_baseline(copies):
    """Nor is one with other labels: then nothing was compared, and that is said."""
    change_json(copies[0] / "summary.json", iterations=5)
    assert "nothing was compared" in describe_gain(read_runs(copies)).text


def test_what_was_not_compared_comes_with_the_command(copies, capsys):
    """For a run with unlabelled images, the missing baseline; for a baseline, a comparison with its settings."""
    found = describe_gain(read_runs(copies[1:]))
    train, report = found.commands
    assert report == f"oneway report {copies[1]}-supervised {copies[1]}"
    assert shlex.split(train)[-2:] == ["--out", f"{copies[1]}-supervised"]
    unused = {"batch_unlabelled": SMALL["train"]["batch_unlabelled"]}
    assert "batch-unlabelled" not in train
    assert _dry_run(train, capsys).changed(train=unused) == with_method(open_run(copies[1]).config)
    (compared,) = describe_gain(read_runs(copies[:1])).commands
    assert "--compare" in shlex.split(compared)
    assert _dry_run(compared, capsys) == small_streets(method=recipe("streets").method, seed=3)


def _dry_run(command: str, capsys: pytest.CaptureFixture[str]) -> Config:
    app([*shlex.split(command)[1:], "--dry-run"], print_error=False, exit_on_error=False, result_action="return_value")
    return Config.model_validate(yaml.safe_load(capsys.readouterr().out))


def test_training_ends_with_how_to_compare(tmp_path):
    """In the terminal and on the page, the same command; brackets and ampersands in paths survive."""
    settings = yaml.safe_dump(json.loads(json.dumps(SMALL)))
    (tmp_path / "settings.yaml").write_text(settings)
    done = forked("train", "streets", "--config", "settings.yaml", "--out", "r [b]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, sentence, train, report = done.stdout.splitlines()
    assert "nothing was compared" in sentence
    assert train.endswith("--method supervised --out 'r [b]-supervised'")
    assert report.strip() == "oneway report 'r [b]-supervised' 'r [b]'"
    page = re.sub("</?span>", "", (tmp_path / "r [b]" / "report.html").read_text())
    assert "nothing was compared" in page
    assert train.strip().replace("'", "&#39;") in page
