"""Tables of methods that are paired with labels alone: by seed, and by the drive that is held out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import scipy.stats
import torch
from PIL import Image
from rich.console import Console

from files import change_json, contents
from oneway.common.errors import UserError
from oneway.config import build, merge
from oneway.data import streets
from oneway.runs import open_run
from oneway.runs.environment import hardware
from oneway.tools.baseline import alike
from oneway.tools.reproduce import EXPERIMENTS, Request, reproduce
from oneway.tools.reproduce.fill_table import with_columns
from oneway.tools.reproduce.jobs import jobs_of
from oneway.tools.reproduce.paired_tables import PAIRED_TABLES
from small_runs import QUIET, TINY, stub

DRIVES = ("0001TP", "0006R0", "0016E5")


@pytest.fixture(scope="module")
def drives(tmp_path_factory) -> Path:
    """CamVid's layout, small: three drives of twelve frames, a third of one of them official validation."""
    root = tmp_path_factory.mktemp("data") / "camvid"
    for number, (drive, frame) in enumerate(product(DRIVES, range(12))):
        split = "val" if drive == "0016E5" and frame < 4 else "train"
        image, labels = streets.render(7, number, 32, 48)
        for folder, pixels in ((split, image), (f"{split}annot", labels)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(root / folder / f"{drive}_{frame:02d}.png")
    return root


def test_drives_are_held_out_in_turn(drives, tmp_path):
    """Each run validates on the frames of its drive, and learns from those of the others; a seed's value is their mean.

    Filled in parts, with what is there used again.
    """
    changes = merge(TINY, {"data": {"cache": tmp_path / "cache"}})
    rows = ("supervised", "mt-phtps")
    request = Request(tmp_path, data=drives, rows=rows, columns=("20",), iterations=1, changes=changes, side_by_side=2)
    folder = tmp_path / "camvid"
    reproduce("camvid", replace(request, rows=("supervised",), drives=("0001TP",), side_by_side=1), QUIET)
    (part,) = json.loads((folder / "results.json").read_text())["by_drive"]["0001TP"]
    assert "No seed has been trained with every drive held out." in (folder / "table.md").read_text()
    written = contents(folder / "supervised-20" / "0001TP")
    reproduce("camvid", request, QUIET)
    assert contents(folder / "supervised-20" / "0001TP") == written
    values = {}
    for method, drive in product(rows, DRIVES):
        run = open_run(folder / f"{method}-20" / drive / "seed0")
        split = json.loads((run.path / "split.json").read_text())
        assert (len(split["labelled"]), len(split["unlabelled"])) == (20, 24)
        assert not [name for name in split["unlabelled"] if drive in name]
        assert run.summary["validation_samples"] == 12
        values[method, drive] = run.summary["value"]
    results = json.loads((folder / "results.json").read_text())
    supervised, teacher = results["cells"]
    assert part["score"]["values"] == [values["supervised", "0001TP"]]
    means = [mean(values[method, drive] for drive in DRIVES) for method in rows]
    assert [cell["score"]["mean"] for cell in (supervised, teacher)] == pytest.approx(means)
    assert supervised["difference"] is None
    assert teacher["difference"]["mean"] == pytest.approx(means[1] - means[0])
    assert len(results["runs"]) == 6
    assert str(drives) not in (folder / "results.json").read_text()
    table = (folder / "table.md").read_text()
    assert f"| `mt-phtps` | {means[1]:.1f} after 1 iteration ({means[1] - means[0]:+.1f}) |" in table
    assert "0006R0 held out:" in table


def facade(out: Path, scores: dict[tuple[str, str], Sequence[float]], **changes: Any) -> None:
    """Runs of `reproduce facade` that scored so, seed by seed."""
    for (method, labels), values in scores.items():
        for seed, value in enumerate(values):
            config = PAIRED_TABLES["facade"].config(method, labels, "").changed(seed=seed, **changes)
            stub(out / "facade" / f"{method}-{labels}" / f"seed{seed}", config, value)


def table_of(name: str, out: Path) -> tuple[dict[tuple[str, str], dict[str, Any]], str]:
    """The cells and the text of a table of what is there."""
    reproduce(name, Request(out, table_only=True), QUIET)
    cells = json.loads((out / name / "results.json").read_text())["cells"]
    return {(cell["row"], cell["column"]): cell for cell in cells}, (out / name / "table.md").read_text()


def test_results_carry_the_hardware_of_the_runs(tmp_path):
    """Of each run, from its own folder: a table may be written on another machine than its runs were trained on."""
    facade(tmp_path, {("supervised", "50"): [40.0, 41.0]})
    change_json(tmp_path / "facade/supervised-50/seed1/environment.json", hardware="Abacus, 10 beads")
    table_of("facade", tmp_path)
    runs = json.loads((tmp_path / "facade/results.json").read_text())["runs"]
    assert [run["environment"]["hardware"] for run in runs] == [hardware(torch.device("cpu")), "Abacus, 10 beads"]
    assert [run["value"] for run in runs] == [40.0, 41.0]


def test_methods_are_paired_by_seed(tmp_path):
    """SciPy's paired t-test has the same statistic; the share of the distance to all labels is that of the means."""
    supervised, teacher, complete = [40.0, 46.0, 43.0], [42.5, 47.5, 46.5], [50.0, 50.5, 51.0]
    facade(tmp_path, {("supervised", "50"): supervised, ("mt-phtps", "50"): teacher, ("supervised", "all"): complete})
    cells, table = table_of("facade", tmp_path)
    cell = cells["mt-phtps", "50"]
    assert cell["score"]["deviation"] == pytest.approx(stdev(teacher))
    difference = cell["difference"]
    assert (difference["values"], difference["n"]) == ([2.5, 1.5, 3.5], 3)
    statistic = scipy.stats.ttest_rel(teacher, supervised).statistic
    assert difference["mean"] / difference["standard_error"] == pytest.approx(statistic)
    assert cell["closed"] == pytest.approx(2.5 / 7.5)
    assert cells["supervised", "50"]["distance"]["mean"] == pytest.approx(7.5)
    assert (cells["supervised", "all"]["distance"], cells["supervised", "50"]["closed"]) == (None, None)
    assert "| `mt-phtps` | 45.5 ± 2.6 (+2.5 ± 0.6) |" in table
    assert "| `mt-phtps` | 33 % |" in table
    assert "over 3 seeds" in table


def test_any_row_can_be_the_one_that_others_are_compared_with(tmp_path):
    """Seed by seed, as with labels alone; the distance to all labels is that of labels alone, and left out."""
    scores = {("supervised", "50"): [40.0, 46.0], ("mt-phtps", "50"): [42.5, 47.5], ("supervised", "all"): [50.0, 50.5]}
    facade(tmp_path, scores)
    said = Console(file=StringIO(), width=500)
    reproduce("facade", Request(tmp_path, over="mt-phtps", table_only=True), said)
    results = json.loads((tmp_path / "facade/results.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in results["cells"]}
    assert results["over"] == "mt-phtps"
    assert cells["supervised", "50"]["difference"]["values"] == [-2.5, -1.5]
    assert cells["mt-phtps", "50"]["difference"] is None
    assert all(cell["distance"] is None for cell in results["cells"])
    assert "the difference to `mt-phtps` of the same seed" in (tmp_path / "facade/table.md").read_text()
    assert "over mt-phtps" in said.file.getvalue()
    with pytest.raises(UserError, match=r"Unknown row of facade 'mt-phpts'. Did you mean 'mt-phtps'\?"):
        reproduce("facade", Request(tmp_path, over="mt-phpts", table_only=True), QUIET)
    with pytest.raises(UserError, match="--over supervised: cifar10 has no pairs of rows; camvid, facade, "):
        reproduce("cifar10", Request(tmp_path, over="supervised", table_only=True), QUIET)


def test_any_number_of_labels_is_a_column(tmp_path):
    """Where it is asked for, and where its runs are; a command for a page about them follows."""
    request = Request(tmp_path / "facade", data=tmp_path, rows=("supervised",), columns=("8",))
    (job,) = jobs_of("facade", with_columns(PAIRED_TABLES["facade"], request), request)
    assert (job.config.labels, job.folder) == ("8", tmp_path / "facade/supervised-8/seed0")
    facade(tmp_path, {("supervised", "8"): [40.0], ("mt-phtps", "8"): [42.0], ("supervised", "50"): [45.0]})
    said = Console(file=StringIO(), width=500)
    reproduce("facade", Request(tmp_path, table_only=True), said)
    assert "| method | 8 labels | 50 labels |" in (tmp_path / "facade/table.md").read_text()
    pair = f"{tmp_path}/facade/supervised-8/seed0 {tmp_path}/facade/mt-phtps-8/seed0"
    assert f"oneway report {pair}" in said.file.getvalue()


def test_rows_that_another_program_knows_are_named(tmp_path):
    """A method of the user's own is a row while its program writes the table, and is not lost in silence after that."""
    facade(tmp_path, {("supervised", "50"): [45.0], ("mt-phtps", "50"): [46.0]})
    (tmp_path / "facade/mt-phtps-50").rename(tmp_path / "facade/two-views-50")
    (tmp_path / "facade/fixmatch-50/seed0").mkdir(parents=True)  # has not ended
    said = Console(file=StringIO(), width=500)
    reproduce("facade", Request(tmp_path, table_only=True), said)
    (note,) = (line for line in said.file.getvalue().splitlines() if line.startswith("Note: "))
    assert "left out: two-views-50. Use that program" in note


def test_no_share_is_told_where_all_labels_are_hardly_better(tmp_path):
    facade(tmp_path, {("supervised", "50"): [50.0], ("mt-phtps", "50"): [54.0], ("supervised", "all"): [50.1]})
    cells, _ = table_of("facade", tmp_path)
    assert cells["mt-phtps", "50"]["difference"]["mean"] == pytest.approx(4)
    assert cells["mt-phtps", "50"]["closed"] is None


def test_a_loss_is_negative_in_every_column(tmp_path):
    """In points and as a share; with one seed there is no deviation to show."""
    facade(tmp_path, {("supervised", "20"): [40.0], ("fixmatch", "20"): [38.0], ("supervised", "all"): [50.0]})
    _, table = table_of("facade", tmp_path)
    assert "| `fixmatch` | 38.0 (-2.0) |" in table
    assert "| `fixmatch` | -20 % |" in table


def test_next_to_nothing_has_no_minus(tmp_path):
    facade(tmp_path, {("supervised", "20"): [40.01], ("fixmatch", "20"): [40.0], ("supervised", "all"): [50.0]})
    _, table = table_of("facade", tmp_path)
    assert "| `fixmatch` | 40.0 (+0.0) |" in table
    assert "| `fixmatch` | 0 % |" in table


def test_only_seeds_with_a_pair_are_compared(tmp_path):
    """A seed that one of the two lacks counts in the mean, and not in the difference; its number is said."""
    facade(tmp_path, {("supervised", "20"): [40.0, 41.0], ("cps", "20"): [43.0, 45.0, 99.0]})
    cells, table = table_of("facade", tmp_path)
    assert cells["cps", "20"]["score"]["n"] == 3
    assert cells["cps", "20"]["difference"]["values"] == [3.0, 4.0]
    assert "| `supervised` | 40.5 ± 0.7 n = 2 |" in table


@pytest.mark.parametrize(
    "changes",
    [{"train": {"batch_labelled": 4}}, {"model": {"weights": None, "backbone": "resnet34"}}],
    ids=str,
)
def test_other_runs_are_no_pair(changes, tmp_path):
    """Of another network or batch, or of another length."""
    facade(tmp_path, {("supervised", "20"): [40.0]})
    facade(tmp_path, {("cps", "20"): [43.0]}, **changes)
    stub(
        tmp_path / "facade/fixmatch-20/seed0", PAIRED_TABLES["facade"].config("fixmatch", "20", ""), 44.0, iterations=9
    )
    cells, table = table_of("facade", tmp_path)
    assert cells["cps", "20"]["difference"] is None
    assert cells["fixmatch", "20"]["difference"] is None
    assert "44.0 after 9 iterations" in table


def test_a_seed_counts_when_all_its_drives_are_there(tmp_path):
    """A mean over other drives would be of something else; each drive's own table has what there is."""
    table = PAIRED_TABLES["camvid"]
    for method, drive, seed in product(("supervised", "mt-phtps"), DRIVES, range(2)):
        if (method, drive, seed) != ("mt-phtps", "0016E5", 1):
            config = table.config(method, "45", drive).changed(seed=seed)
            value = 10.0 * DRIVES.index(drive) + seed + 3 * (method == "mt-phtps")
            stub(tmp_path / "camvid" / f"{method}-45" / drive / f"seed{seed}", config, value)
    said = Console(file=StringIO(), width=2000)
    reproduce("camvid", Request(tmp_path, table_only=True), said)
    printed = " ".join(said.file.getvalue().split())
    assert "the mean over 0001TP, 0006R0 and 0016E5" in printed
    assert "Note: " not in printed
    cells, table = table_of("camvid", tmp_path)
    assert cells["supervised", "45"]["score"]["values"] == [10.0, 11.0]
    assert cells["mt-phtps", "45"]["score"]["values"] == [13.0]
    assert cells["mt-phtps", "45"]["difference"]["values"] == [3.0]
    by_drive = json.loads((tmp_path / "camvid" / "results.json").read_text())["by_drive"]
    assert [len(by_drive[drive][1]["score"]["values"]) for drive in DRIVES] == [2, 2, 1]
    assert "the mean over 0001TP, 0006R0 and 0016E5" in table


def test_what_is_printed_of_one_drive_is_no_mean_over_drives(tmp_path):
    """Until a seed has all of them."""
    config = PAIRED_TABLES["camvid"].config("supervised", "45", "0006R0")
    stub(tmp_path / "camvid" / "supervised-45" / "0006R0" / "seed0", config, 40.0)
    said = Console(file=StringIO(), width=2000)
    reproduce("camvid", Request(tmp_path, table_only=True), said)
    printed = " ".join(said.file.getvalue().split())
    assert "0006R0" in printed
    assert "mean over" not in printed


def test_paired_tables_have_a_configuration_for_every_cell():
    """All of one length, and each a valid pair with labels alone."""
    for name, table in PAIRED_TABLES.items():
        assert name in EXPERIMENTS
        for row, column, drive in product(table.usual_rows or table.rows, table.columns, table.parts):
            config = table.config(row, column, drive)
            assert build(config.model_dump(), "test") == config
            assert (config.labels, config.train.iterations, config.data.holdout_drive) == (column, 2000, drive or None)
            assert alike(table.config("supervised", column, drive), config)
