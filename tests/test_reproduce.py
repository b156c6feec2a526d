"""The paper's tables as commands."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import mean, stdev

import pytest
import torch
from rich.console import Console

from files import change_json
from oneway.common.errors import UserError
from oneway.runs.environment import hardware
from oneway.tools.reproduce import EXPERIMENTS, Request, reproduce
from oneway.tools.reproduce.tables import TABLES
from oneway.tools.reproduce.two_moons import panel_config

QUIET = Console(quiet=True)


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


def test_a_table_is_filled_once(tiny_cifar, tmp_path):
    """Mean and sample deviation of the runs' own values, with a length that is not the table's.

    Asked again, nothing is trained, and the table is the same.
    """
    request = Request(
        tmp_path, seeds=2, data=tiny_cifar, rows=("supervised",), columns=("250",), iterations=1, side_by_side=2
    )
    reproduce("cifar10", request, QUIET)
    folder = tmp_path / "cifar10"
    summaries = [folder / "supervised-250" / f"seed{seed}" / "summary.json" for seed in range(2)]
    values = [json.loads(summary.read_text())["value"] for summary in summaries]
    (cell,) = json.loads((folder / "results.json").read_text())["cells"]
    assert cell["values"] == values
    assert (cell["mean"], cell["deviation"]) == (mean(values), stdev(values))
    assert (cell["paper"], cell["labels"], cell["iterations"]) == ("31.8 ± 0.6", [250, 250], [1, 1])
    table = (folder / "table.md").read_text()
    assert f"| supervised | {mean(values):.1f} ± {stdev(values):.1f} after 1 iteration (31.8 ± 0.6) |" in table

    written = [summary.stat().st_mtime_ns for summary in summaries]
    reproduce("cifar10", request, QUIET)
    assert [summary.stat().st_mtime_ns for summary in summaries] == written
    assert (folder / "table.md").read_text() == table


def test_a_table_is_filled_in_parts(tiny_cifar, tmp_path):
    """What is already there stays in the table, a column asked for twice counts once."""
    request = Request(tmp_path, data=tiny_cifar, rows=("supervised",), columns=("250", "250"), iterations=1)
    reproduce("cifar10", request, QUIET)
    reproduce("cifar10", replace(request, rows=("supervised-phtps-aug",), columns=("250",)), QUIET)
    cells = json.loads((tmp_path / "cifar10" / "results.json").read_text())["cells"]
    assert [(cell["row"], cell["column"], cell["seed"]) for cell in cells] == [
        ("supervised", "250", [0]),
        ("supervised-phtps-aug", "250", [0]),
    ]


def test_results_carry_the_hardware_of_the_runs(tiny_cifar, tmp_path):
    """Of each run, from its own folder: a table may be written on another machine than its runs were trained on."""
    request = Request(tmp_path, seeds=2, data=tiny_cifar, rows=("supervised",), columns=("250",), iterations=1)
    reproduce("cifar10", request, QUIET)
    folder = tmp_path / "cifar10"
    change_json(folder / "supervised-250" / "seed1" / "environment.json", hardware="Abacus, 10 beads")
    reproduce("cifar10", request, QUIET)
    results = json.loads((folder / "results.json").read_text())
    (cell,) = results["cells"]
    here = hardware(torch.device("cpu")).partition(",")[0]
    assert [environment["hardware"].partition(",")[0] for environment in cell["environment"]] == [here, "Abacus"]
    assert "environment" not in results


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
    ],
)
def test_what_is_not_there_is_named(name, changes, words, tiny_cifar, tmp_path):
    """Before anything is trained."""
    with pytest.raises(UserError, match=words):
        reproduce(name, Request(**{"out": tmp_path, "data": tiny_cifar, **changes}), QUIET)
    assert not list(tmp_path.iterdir())
