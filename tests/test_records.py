"""What the files of a run folder hold is checked when they are read; links and paths in it are the user's to give."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import oneway
from files import change_json
from oneway.common.errors import UserError
from oneway.common.links import make_folders, replace_file
from oneway.common.run_files import METRICS
from oneway.runs import Run, data_of, open_run
from oneway.runs.atomic import write_json
from small_runs import QUIET

DAMAGE: list[tuple[str, dict[str, Any], str]] = [
    ("summary", {"value": "many"}, "value is 'many'"),
    ("summary", {"value": 101.0}, "value is 101.0"),
    ("summary", {"metric": "iou"}, "metric is 'iou'"),
    ("summary", {"seed": True}, "seed is True"),
    ("summary", {"iterations": -1}, "iterations is -1"),
    ("summary", {"per_class": {}}, "per_class is {}"),
    ("summary", {"per_class": {"a\x1b": 1.0}}, "per_class"),
    ("summary", {"absent": ["x"]}, "absent names 'x'"),
    ("summary", {"confusion": [[1]]}, "confusion has not 9 rows of 9 numbers"),
    ("summary", {"confusion": [[10**30] * 9] * 9}, "confusion.0.0 is 1000000"),
    ("summary", {"seconds": None}, "seconds is None"),
    ("environment", {"versions": ["torch"]}, "versions is"),
    ("environment", {"versions": {"torch": 2}}, "versions.torch is 2"),
    ("environment", {"command": None}, "command is None"),
    ("split", {"labelled": [1]}, "labelled.0 is 1"),
    ("split", {"unlabelled": "train"}, "unlabelled is 'train'"),
]


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Run:
    """A finished run, to be changed."""
    return open_run(Path(shutil.copytree(trained_run, tmp_path / "run")))


@pytest.mark.parametrize(("name", "change", "words"), DAMAGE)
def test_a_value_that_cannot_be_used_is_named(run: Run, name: str, change: dict[str, Any], words: str) -> None:
    """With its file and key."""
    change_json(run.path / f"{name}.json", **change)
    with pytest.raises(UserError) as error:
        getattr(run, name)
    assert str(error.value).startswith(f"{run.path}/{name}.json: damaged; {words}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"image": "a", "hits": [1, 2], "labelled": [1, 1], "predicted": [3, 3]}', "2 hits of 1 pixels labelled"),
        ('{"image": "a", "hits": [1], "labelled": [1, 1], "predicted": [3, 3]}', "zip"),
        ('{"image": "a", "hits": [-1], "labelled": [1], "predicted": [3]}', "hits.0 is -1"),
        ('{"image": "a"}', "it lacks hits"),
        ("[]", ""),
    ],
)
def test_damaged_counts_of_an_image_are_named(run: Run, line: str, words: str) -> None:
    """By their line."""
    file = run.path / "validation.jsonl"
    whole = file.read_text(encoding="utf-8")
    file.write_text(f"{whole}{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"validation.jsonl: damaged; line {whole.count(chr(10)) + 1}: .*{words}"):
        _ = run.validation


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', "[" * 5000])
@pytest.mark.parametrize("name", ["summary.json", "environment.json", "split.json"])
def test_what_is_not_json_is_refused(run: Run, name: str, value: str) -> None:
    """Under whatever key; Python would read and write it."""
    (run.path / name).write_text(f'{{"more": {value}}}', encoding="utf-8")
    with pytest.raises(UserError, match=f"{name}: damaged; not JSON"):
        getattr(run, name.removesuffix(".json"))


@pytest.mark.parametrize(
    "line",
    ['{"iteration": 1, "loss": NaN}', '{"iteration": 1, "loss": "low"}', '{"iteration": 0.5}', '{"loss": 1}', "[]"],
)
def test_a_damaged_line_of_the_log_is_named(run: Run, line: str) -> None:
    """By its number; at the end of a run that is continued, it is dropped with what came after the checkpoint."""
    file = run.path / "metrics.jsonl"
    whole = file.read_text(encoding="utf-8")
    file.write_text(f"{whole}{line}\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"metrics.jsonl: damaged; line {whole.count(chr(10)) + 1}: "):
        run.metrics()
    run.write_lines(METRICS, run.metrics_until(4))
    assert file.read_text(encoding="utf-8") == whole


def test_names_of_a_split_fit_together(run: Run) -> None:
    """Also where the hash was made to fit: a labelled image is one that trains, and none counts twice."""
    split = run.split
    for wrong in (replace(split, labelled=("x",)), replace(split, labelled=(*split.labelled, split.labelled[0]))):
        (run.path / "split.json").write_text(wrong.to_json(), encoding="utf-8")
        with pytest.raises(UserError, match=r"split.json: damaged; labelled has"):
            assert run.split


def test_values_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    """Nobody could read them again."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"value": float("nan")})


def test_a_run_does_not_say_where_decoded_images_go(run: Run, tmp_path: Path) -> None:
    """Only the user does; and with a folder of the user's, no other folder is read."""
    settings = run.config.data.model_copy(
        update={"name": "folder", "cache": tmp_path / "theirs", "unlabelled": tmp_path, "path": tmp_path}
    )
    stranger = Run(run.path, run.config.model_copy(update={"data": settings}))
    assert data_of(stranger, QUIET).cache is None
    assert data_of(stranger, QUIET, cache=tmp_path / "mine").cache == tmp_path / "mine"
    given = data_of(stranger, QUIET, tmp_path / "data")
    assert (given.path, given.unlabelled) == (tmp_path / "data", None)


def test_embedded_data_are_in_no_folder(run: Run, tmp_path: Path) -> None:
    """One that is named would be ignored, and scores taken for its own."""
    with pytest.raises(UserError, match=r"^--data .*: .* is of streets, which reads no folder\. Leave it out\.$"):
        data_of(run, QUIET, tmp_path)


def test_the_images_of_a_run_are_named_or_those_of_another_user_refused(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose folder says where they are."""
    settings = run.config.data.model_copy(update={"name": "folder", "path": tmp_path})
    theirs = Run(run.path, run.config.model_copy(update={"data": settings}))
    data_of(theirs, Console(width=1000))
    assert f"Images: {tmp_path}, as {run.path}/config.yaml says." in capsys.readouterr().out
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    if run.path.stat().st_uid:  # what the administrator made is anybody's
        with pytest.raises(UserError, match=r"belongs to another user.*--data"):
            data_of(theirs, QUIET)
    assert data_of(theirs, QUIET, tmp_path / "data").path == tmp_path / "data"


def test_links_that_the_user_names_are_followed(run: Run, tmp_path: Path) -> None:
    """A folder of runs on another disk, or a model that is typed; inside the folder they are not."""
    (tmp_path / "runs").symlink_to(tmp_path)
    linked = open_run(tmp_path / "runs" / "run")
    assert linked.summary == run.summary
    (tmp_path / "model.safetensors").symlink_to(run.model_file)
    assert oneway.load(tmp_path / "model.safetensors", device="cpu").classes
    run.model_file.rename(tmp_path / "elsewhere")
    (run.path / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"model.safetensors: a link, which is not followed"):
        oneway.load(run.path, device="cpu")


def test_what_is_written_follows_no_link(tmp_path: Path) -> None:
    """A file takes the place of a link; a folder that is one is refused."""
    home, secret = tmp_path / "home", tmp_path / "secret"
    secret.mkdir()
    (secret / "file").write_text("mine", encoding="utf-8")
    home.mkdir()
    (home / "file").symlink_to(secret / "file")
    replace_file(home / "file", b"new")
    assert ((home / "file").read_bytes(), (secret / "file").read_bytes()) == (b"new", b"mine")
    (home / "inner").symlink_to(secret)
    with pytest.raises(UserError, match="inner: a link"):
        make_folders(home, home / "inner" / "deeper")
    assert [path.name for path in secret.iterdir()] == ["file"]
    make_folders(home, home / "a" / "b")
    assert (home / "a" / "b").is_dir()


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    """And nothing beside it."""
    (tmp_path / "file").write_text("old", encoding="utf-8")
    with pytest.raises(TypeError):
        replace_file(tmp_path / "file", "no bytes")  # type: ignore[arg-type]
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == ["old"]
