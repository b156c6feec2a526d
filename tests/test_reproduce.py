"""The paper's tables as commands, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from statistics import mean, stdev

import pytest
from rich.console import Console

from oneway.cli import app
from oneway.common.errors import UserError
from oneway.runs import lock
from oneway.tools.reproduce import EXPERIMENTS, Request, reproduce
from oneway.tools.reproduce.tables import TABLES
from oneway.tools.reproduce.two_moons import panel_config
from reliability.harness import wait_until
from small_runs import QUIET, stub


def test_every_cell_of_every_table_has_a_configuration():
    """Rows are methods that exist, with variants that they allow; columns are numbers of labels; the paper fits."""
    for name, table in TABLES.items():
        assert name in EXPERIMENTS
        for row in table.rows:
            assert sum(table.paper(row, column) is not None for column in table.columns) in (0, len(table.columns))
            for column in table.columns:
                config = table.config(row, column)
                assert (config.labels, config.recipe) == (column, table.recipe)
                assert type(config).model_validate(config.model_dump()) == config  # with all its checks


@pytest.mark.parametrize(("column", "labels"), [("250", 250), ("1000", 1000), ("4000", 4000), ("all", 50_000)])
def test_runs_are_as_long_as_the_papers(column, labels):
    """CIFAR-10: 100 epochs of ⌊labels / 128⌋ iterations; 1000·4000/labels of them for semi-supervised runs."""
    supervised = TABLES["cifar10"].config("supervised", column).train
    assert (supervised.iterations, supervised.epochs) == (None, 100)
    semi_supervised = TABLES["cifar10"].config("simple 1w-ct", column).train
    assert semi_supervised.iterations == 1000 * 4000 // labels * (labels // 128)


def test_results_of_others_stand_beside_ours(tmp_path):
    """With network and source, in brackets, and only where they are known and a column of ours is."""
    for table in TABLES.values():
        assert all(row.by_column(table.columns) for row in table.quoted)
    config = TABLES["cityscapes"].config("supervised", "1/2")
    stub(tmp_path / "cityscapes/supervised-1of2/seed0", config, 70.0)
    reproduce("cityscapes", Request(tmp_path, table_only=True), QUIET)
    table = (tmp_path / "cityscapes/table.md").read_text()
    assert "| `supervised` | 70.0 (71.9 ± 0.1) |" in table
    assert "| ECS, DeepLab v3+-RN50, quoted from Mendel et al., ECCV 2020 | (72.9) |" in table
    assert "| CAC, DeepLab v3+-RN50, quoted from Lai et al., CVPR 2021 |  |" in table


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.quoted])
def test_numbers_of_others_are_whole_in_a_narrow_terminal(name, tmp_path):
    """However long a source is, and where two publish the same numbers."""
    stub(tmp_path / name / "supervised-1of4" / "seed0", TABLES[name].config("supervised", "1/4"), 60.0)
    said = Console(file=StringIO(), width=80)
    reproduce(name, Request(tmp_path, table_only=True), said)
    printed = said.file.getvalue()
    assert "…" not in printed
    for row in TABLES[name].quoted:
        assert all(source in printed for source in row.source.split("; "))
        assert f"({row.by_column(TABLES[name].columns)['1/4']})" in printed


def test_brackets_are_explained_where_there_are_any(tmp_path):
    """A terminal has a column for the paper's own numbers, and neither where the paper has none."""
    for name, row, brackets in (
        ("cityscapes-half-teacher", "the text", ""),
        ("variants", "mt 1w-ct", "In brackets: the paper's."),
        ("cityscapes", "supervised", "In brackets: the paper's, and results of others, as the paper quotes them."),
    ):
        stub(tmp_path / name / f"{row.replace(' ', '-')}-1of4" / "seed0", TABLES[name].config(row, "1/4"), 60.0)
        said = Console(file=StringIO(), width=2000)
        reproduce(name, Request(tmp_path, table_only=True), said)
        printed, table = " ".join(said.file.getvalue().split()), (tmp_path / name / "table.md").read_text()
        assert ("In brackets" in table, brackets in table) == (bool(brackets), True)
        assert ("┃ the paper ┃" in printed) == bool(brackets)
        assert "the paper's." not in printed
        assert ("In brackets: results of others" in printed) == (name == "cityscapes")


def test_figures_of_settings_have_the_papers_own_setting_beside_ours():
    """Its figures show no numbers, and its tables have those of one setting in each."""
    half, full, cifar = (TABLES[name] for name in ("cityscapes-half", "cityscapes", "cifar10"))
    for name, row, same, its_row in (
        ("consistency-weight", "α 0.5", half, "simple-phtps"),
        ("batch-norm-half", "clean inputs", half, "simple-phtps"),
        ("batch-norm", "both inputs", full, "simple-phtps"),
        ("cifar10-batch-norm", "clean inputs", cifar, "simple 1w-ct"),
    ):
        table = TABLES[name]
        assert [other for other in table.rows if table.rows[other].paper] == [row]
        for column in table.columns:
            assert table.paper(row, column) == same.paper(its_row, column)
            assert table.config(row, column) == same.config(its_row, column)


def test_a_table_is_filled_once(tiny_cifar, tmp_path):
    """Mean and sample deviation of the runs' own values, with a length that is not the table's.

    A column asked for twice counts once. Asked again, nothing is trained, and the table is the same. Each run that ends
    is counted.
    """
    request = Request(
        tmp_path,
        seeds=2,
        data=tiny_cifar,
        rows=("supervised",),
        columns=("250", "250"),
        iterations=1,
        changes={"train": {"batch_labelled": 4, "batch_unlabelled": 4}},
        side_by_side=1,
    )
    reproduce("cifar10", request, QUIET)
    folder = tmp_path / "cifar10"
    summaries = [folder / "supervised-250" / f"seed{seed}" / "summary.json" for seed in range(2)]
    values = [json.loads(summary.read_text())["value"] for summary in summaries]
    (cell,) = json.loads((folder / "results.json").read_text())["cells"]
    assert cell["score"]["values"] == values
    assert (cell["score"]["mean"], cell["score"]["deviation"]) == (mean(values), stdev(values))
    assert (cell["paper"], cell["iterations"]) == ("31.8 ± 0.6", [1])
    table = (folder / "table.md").read_text()
    assert f"| `supervised` | {mean(values):.1f} ± {stdev(values):.1f} after 1 iteration (31.8 ± 0.6) |" in table

    written = [summary.stat().st_mtime_ns for summary in summaries]
    said = Console(file=StringIO(), width=500)
    reproduce("cifar10", request, said)
    ended = [f"{1 + seed} of 2 runs: supervised, 250 labels, seed {seed}  {values[seed]:.1f} %" for seed in range(2)]
    assert all(line in said.file.getvalue() for line in ended)
    assert [summary.stat().st_mtime_ns for summary in summaries] == written
    assert (folder / "table.md").read_text() == table


def test_runs_are_saved_and_stop_when_the_table_is_killed(tmp_path):
    """Else they would train on unseen, and be locked for the table that goes on with them."""
    words = ["reproduce", "two-moons", "--iterations", "1000000", "--side-by-side", "1", "--out", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "oneway", *words], stdout=subprocess.DEVNULL) as table:
        wait_until(lambda: any(log.stat().st_size for log in tmp_path.rglob("metrics.jsonl")))
        table.kill()
    (log,) = tmp_path.rglob("metrics.jsonl")
    wait_until(lambda: not (log.parent / lock.NAME).exists())
    assert any((log.parent / "checkpoint").iterdir())


def test_the_command_takes_several_of_each(monkeypatch, tmp_path):
    """`--methods a b`, or `--row a --row b`; weights in a file are named from the root."""
    asked = []
    monkeypatch.setattr("oneway.tools.reproduce.reproduce", lambda *arguments: asked.append(arguments))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.safetensors").touch()
    for words in (
        "camvid --methods supervised cps --labels 20 45 --drives 0001TP --seeds 3 --weights w.safetensors",
        "camvid --row supervised --row cps --column 20 --column 45 --drives 0001TP --seeds 3 --weights none",
    ):
        app(f"reproduce {words}", print_error=False, exit_on_error=False, result_action="return_value")
    for (name, request, _), weights in zip(asked, (str(tmp_path / "w.safetensors"), "none"), strict=True):
        assert (name, request.rows, request.columns, request.seeds) == (
            "camvid",
            ("supervised", "cps"),
            ("20", "45"),
            3,
        )
        assert (request.drives, request.changes) == (("0001TP",), {"model": {"weights": weights}})


def test_the_moons_are_as_long_as_asked_for():
    """By default as the paper's."""
    assert panel_config("1w-ct", seed=0).train.iterations == 20_000
    assert panel_config("1w-ct", seed=0, iterations=100).train.iterations == 100


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("cifar11", {}, "cifar10"),
        ("cifar10", {"rows": ("supervized",)}, "supervised"),
        ("cifar10", {"columns": ("400",)}, "4000"),
        ("cifar10", {"data": None}, "--data"),
        (
            "cifar10",
            {"changes": {"method": "supervised", "labels": "250"}},
            "--config: the table decides labels and",
        ),
        (
            "cifar10-teacher",
            {"changes": {"train": {"teacher_norm": "batch"}}},
            "the table decides train.teacher_norm",
        ),
        ("two-moons", {"data": None, "rows": ("1w-ct",)}, "takes no --data, --row"),
        ("camvid", {"rows": ("supervized",)}, "supervised"),
        ("camvid", {"drives": ("0006R1",)}, "0006R0"),
        ("facade", {"columns": (__file__,)}, "oneway train folder --data .* --labels .*test_reproduce.py --compare"),
        ("camvid", {"columns": ("1/4",)}, "oneway train camvid --data .* --labels 1/4 --compare"),
        ("camvid", {"data": None}, "--data"),
        ("camvid", {"changes": {"data": {"holdout_drive": "0006R0"}}}, "the table decides data.holdout_drive"),
        ("facade-settings", {"rows": ("s_G 0",)}, "Known: 'supervised', 's_G 0, s_P 0', "),
        ("facade", {"drives": ("0006R0",)}, "holds no drive out"),
        ("facade", {"table_only": True}, "no run of facade has ended there"),
        ("cifar10", {"table_only": True}, "no run of cifar10 has ended there"),
        ("cifar10", {"drives": ("0006R0",)}, "holds no drive out"),
        ("facade-settings", {"changes": {"train": {"alpha": 1.0}}}, "the table decides train.alpha"),
        ("facade-qualitative", {"table_only": True}, "no run has ended there"),
        ("facade-qualitative", {"seeds": 2}, "is one figure"),
        ("facade-qualitative", {"drives": ("0006R0",)}, "holds no drive out"),
        ("camvid-qualitative", {"drives": ("0006R1",)}, "0006R0"),
    ],
)
def test_what_is_not_there_is_named(name, changes, words, tiny_cifar, tmp_path):
    """Before anything is trained."""
    with pytest.raises(UserError, match=words):
        reproduce(name, Request(**{"out": tmp_path, "data": tiny_cifar, **changes}), QUIET)
    assert not list(tmp_path.iterdir())
