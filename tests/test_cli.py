"""Facts about the command line, tried as real processes: training and evaluation once from nothing, else in forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

from oneway.data.streets import render
from processes import forked, oneway
from small_runs import SMALL_FLAGS


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs")
    done = oneway("train", "streets", *SMALL_FLAGS, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.parametrize("verb", [[], ["train"], ["eval"], ["report"], ["quickstart"], ["reproduce"]])
def test_help_answers_without_torch(verb, tmp_path):
    """Every verb explains itself before anything heavy is imported."""
    check = (
        "import sys; sys.argv = ['oneway', *sys.argv[1:]]\n"
        "from oneway.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", check, *verb, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize(("end", "status"), [("", 0), ("sys.exit(3)", 3), ("sys.exit('no')", 1), ("1 / 0", 1)])
def test_a_process_that_ends_at_once_ends_like_any_other(end, status, tmp_path):
    """With its status, after its threads, after all that others have to do at the end, and with all that it printed."""
    script = (
        "import atexit, sys, threading, time\n"
        "from oneway.cli import command\n"
        "def main():\n"
        "    atexit.register(print, 'cleaned')\n"
        "    threading.Thread(target=lambda: (time.sleep(0.2), print('joined'))).start()\n"
        f"    {end}\n"
        "command.main = main\n"
        "command.run()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout.split(), done.returncode) == (["joined", "cleaned"], status), done.stderr


def test_a_limit_of_processes_is_not_taken_for_want_of_memory(tmp_path):
    """As Python says it where the system starts no further thread; a smaller batch would not help."""
    script = (
        "import sys\n"
        "from oneway.cli import command\n"
        "def app(*words, **options):\n"
        '    raise RuntimeError("can\'t start new thread")\n'
        "command.app, sys.argv = app, ['oneway', 'check', '.']\n"
        "command.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, "ulimit -u" in done.stderr) == (1, True), done.stderr


def test_run_folder_holds_what_it_promises(run):
    """Every file of the contract; the summary has its fields and the value of the last iteration."""
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "config.yaml",
        "environment.json",
        "split.json",
        "metrics.jsonl",
        "summary.json",
        "validation.jsonl",
        "model.safetensors",
        "checkpoint",
        "report.html",
    }
    summary = json.loads((run / "summary.json").read_text())
    assert set(summary) >= {
        "method",
        "variant",
        "seed",
        "labels",
        "iterations",
        "metric",
        "value",
        "per_class",
        "seconds",
        "peak_memory_mib",
    }
    assert (summary["method"], summary["labels"], summary["iterations"]) == ("simple-phtps", 4, 4)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "miou" in line][-1]
    assert (last["iteration"], last["miou"]) == (4, summary["value"])
    split = json.loads((run / "split.json").read_text())
    assert len(split["labelled"]) == 4
    assert len(split["unlabelled"]) == 16


def test_eval_agrees_with_the_summary(run):
    """The model on disk scores what the run said at its end, as JSON and as a table."""
    summary = json.loads((run / "summary.json").read_text())
    result = json.loads(oneway("eval", run, "--json", cwd=run.parent).stdout)
    assert result["value"] == pytest.approx(summary["value"], abs=1e-6)
    assert result["per_class"] == pytest.approx(summary["per_class"], abs=1e-6)
    table = forked("eval", run, cwd=run.parent).stdout
    assert f"{summary['value']:.1f}" in table
    (row,) = (line for line in table.splitlines() if "road" in line)
    values = [result[key]["road"] for key in ("per_class", "recall", "precision", "dice")]
    iou, *sides = ("–" if value is None else f"{value:.1f}" for value in values)
    interval = " – ".join(f"{bound:.1f}" for bound in result["class_intervals"]["road"])
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["road", iou, interval, *sides]
    assert result["interval"] == pytest.approx(summary["interval"])


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("eval RUN", "per_class"),
        ("check photos", "findings"),
        ("predict RUN photos/images --facts", "results"),
        ("bench params --case swiftnet-rn18 --out params.json", "results"),
    ],
)
def test_json_prints_json_and_nothing_else(arguments, key, run, tmp_path):
    """On the standard output, for every verb that has the flag; files are written besides where they are asked for."""
    for index in range(4):
        pixels, labels = render(1, index, 32, 64)
        for folder, content in (("images", pixels), ("masks", labels)):
            (tmp_path / "photos" / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(content).save(tmp_path / "photos" / folder / f"{index}.png")
    done = forked(*arguments.replace("RUN", str(run)).split(), "--json", cwd=tmp_path)
    printed = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert key in printed
    written = [json.loads(file.read_text()) for file in sorted(tmp_path.rglob("*.json"))]
    if "--out" in arguments:
        assert written == [printed]
    if "--facts" in arguments:
        assert [result for result in written if "shares" in result] == printed["results"]
        assert [Path(result["mask"]).name for result in printed["results"]] == [f"{index}.png" for index in range(4)]


def test_a_config_file_repeats_a_run(run, tmp_path):
    """`--config` with a run's own config.yaml trains the same weights again, to the byte, by as many threads."""
    done = forked("train", "streets", "--config", run / "config.yaml", "--out", "again", cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again/model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_an_ended_run_is_not_trained_again(run):
    """`--resume` says so and changes nothing."""
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    done = forked("train", "streets", "--out", run, "--resume", cwd=run.parent)
    assert done.returncode == 0
    assert "has ended" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train streats", "Unknown recipe 'streats'. Did you mean 'streets'?"),
        ("train ./occupid --resume", "occupid: no such file or folder. Did you mean occupied?"),
        ("train set.zip", "set.zip: a file, and not a recipe. Use: oneway train folder --data set.zip"),
        ("train streets --method simple-phtp", "'simple-phtps'"),
        ("train streets --variant 1w", "'1w-ct'"),
        ("train streets --train.iteration 5", "Did you mean --train.iterations?"),
        ("train streets --train.iterations 0", "greater than 0 (got '0')"),
        ("reproduce camvid --seeds 0", "--seeds: should be greater than 0 (got 0)"),
        ("eval run --window 64 0", "--window: should be greater than 0 (got 0)"),
        ("train streets --data.images 16 --data.size 32 64 --labels 0", "no image would be labelled"),
        ("train streets --data.images 16 --data.size 32 64 --labels 17", "asks for 17 labelled images, there are 16"),
        ("train streets --config missing.yaml", "missing.yaml: cannot be read"),
        ("train streets --config wrong.yaml", "unknown key 'train.iteration'. Did you mean 'train.iterations'?"),
        ("train streets --train.device tpu9", "device tpu9: no such kind"),
        ("train streets --train.device cuda:7", "device cuda:7: PyTorch"),
        ("train streets --data.images 16 --data.size 32 64 --model.weights none.pth", "no such file"),
        ("train streets --out occupied", "occupied: exists and is not a run folder"),
        ("train streets --out occupied --resume", "occupied: exists and is not a run folder"),
        ("trian streets", "Unknown verb 'trian'. Did you mean 'train'?"),
        ("train streets --method superviced", "method: unknown value 'superviced'. Did you mean 'supervised'? It"),
        ("train streets --jitter.crop 160", "--jitter.crop takes 2 values, and has 1. Height and width"),
        ("train streets --seed", "--seed needs a value; `oneway train --help`"),
        ("export run", "--to is missing; `oneway export --help`"),
        ("train folder occupied", "'occupied' is not expected here. If it holds the images: --data occupied."),
        ("train streets stray", "'stray' is not expected here; `oneway train --help` lists what is."),
        ("train streets --optimiser.nesterov false", "'false' is not expected here: a switch takes no value"),
        ("eval nowhere", "nowhere: no such file or folder"),
        ("bench params --json params.json", "--json takes no file: it prints to the standard output"),
        ("report nowhere", "nowhere: no such file or folder"),
    ],
)
def test_bad_input_is_answered_before_any_training(arguments, message, tmp_path):
    """One readable message with the value in it, a status of failure, no traceback, and nothing left behind."""
    (tmp_path / "wrong.yaml").write_text("train: {iteration: 5}\n")
    (tmp_path / "set.zip").write_text("")
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.txt").write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    done = forked(*arguments.split(), cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_weights_that_cannot_be_downloaded_are_a_user_error(tmp_path):
    """Without a network, `imagenet` names the two ways out, and no run is begun."""
    asked = ("--model.width", "1", "--model.weights", "imagenet", "--out", "run")
    done = oneway("train", "streets", *asked, cwd=tmp_path, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hub"))
    assert done.returncode == 1
    assert "cannot be fetched" in done.stderr
    assert "--model.weights FILE" in done.stderr
    assert not (tmp_path / "run").exists()


def test_another_run_is_never_overwritten(run):
    """A folder that holds a run is refused, and the way out is named."""
    before = (run / "model.safetensors").read_bytes()
    done = forked("train", "streets", *SMALL_FLAGS, "--seed", "5", "--out", run, cwd=run.parent)
    assert done.returncode == 1
    assert "holds a run already" in done.stderr
    assert "--resume" in done.stderr
    assert "--out" in done.stderr
    assert (run / "model.safetensors").read_bytes() == before


def test_resuming_with_other_settings_is_refused(run):
    """The difference is shown, old and new."""
    done = forked("train", "streets", "--out", run, "--resume", "--train.iterations", "8", cwd=run.parent)
    assert done.returncode == 1
    assert "train.iterations: 4 → 8" in done.stderr
    for arguments, message in (
        (["moons"], "is a run of recipe streets, not of moons"),
        (["streets", "--config", "other.yaml"], "train.alpha: 1.0 → 0.25"),
    ):
        (run.parent / "other.yaml").write_text("train: {alpha: 0.25}\n")
        done = forked("train", *arguments, "--out", run, "--resume", cwd=run.parent)
        assert done.returncode == 1
        assert message in " ".join(done.stderr.split())


def test_epochs_asked_for_win_over_a_recipes_iterations(tmp_path):
    """10 epochs of ⌊16 / 8⌋ iterations, although the recipe counts in iterations."""
    done = forked("train", "streets", "--train.epochs", "10", "--dry-run", cwd=tmp_path)
    settings = yaml.safe_load(done.stdout)["train"]
    assert (settings["epochs"], settings["iterations"]) == (10, None)


def test_paths_are_text_and_not_markup(tmp_path):
    """Brackets in a path reach the reader as they are."""
    done = forked("eval", "runs/[a]/[/b]", cwd=tmp_path)
    assert done.returncode == 1
    assert "runs/[a]/[/b]: no such file or folder" in done.stderr


def test_quickstart_does_not_overwrite_a_run(run):
    """Its summary would replace the run's own."""
    before = (run / "summary.json").read_bytes()
    done = forked("quickstart", "--out", run, cwd=run.parent)
    assert done.returncode == 1
    assert "would be overwritten" in done.stderr
    assert (run / "summary.json").read_bytes() == before


def test_quickstart_refuses_an_impossible_seed(tmp_path):
    """Before anything is rendered or written."""
    done = forked("quickstart", "--seed", "-1", cwd=tmp_path)
    assert done.returncode != 0
    assert "seed" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_crop_larger_than_the_scaled_image_trains(tmp_path):
    """It is padded: 32×64 images at half scale in crops of 48×80."""
    larger = " ".join(SMALL_FLAGS).replace("--jitter.crop 32 64", "--jitter.crop 48 80 --jitter.scale 0.5 0.6").split()
    done = forked("train", "streets", *larger, "--out", "run", cwd=tmp_path, report=False)
    assert done.returncode == 0, done.stderr


def test_dry_run_prints_the_settings_and_does_nothing(tmp_path):
    """The printed YAML is a configuration file."""
    done = oneway("train", "streets", "--train.alpha", "0.7", "--dry-run", cwd=tmp_path)
    assert "alpha: 0.7" in done.stdout
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "settings.yaml").write_text(done.stdout)
    again = forked("train", "streets", "--config", "settings.yaml", "--dry-run", cwd=tmp_path)
    assert again.stdout == done.stdout
