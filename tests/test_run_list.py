"""`oneway runs` says of every run in a folder what its files say, and touches nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from files import change_json, contents
from oneway.cli import main
from oneway.common.errors import UserError
from oneway.common.run_files import ENVIRONMENT, METRICS, SUMMARY
from oneway.runs import lock
from oneway.tools.run_list import ListedRun, list_runs, table
from oneway.tools.watch.state import Watcher
from processes import oneway

LOCKING = """
import sys
from pathlib import Path
from oneway.runs import lock
with lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(two_runs, tmp_path) -> Path:
    """Both runs of a comparison, the supervised one started last and better."""
    for run, hour, value in zip(two_runs, ("15", "14"), (60.5, 40.5), strict=True):
        copy = Path(shutil.copytree(run, tmp_path / "runs/both" / run.name))
        change_json(copy / ENVIRONMENT, started=f"2026-03-01T{hour}:30:00+00:00")
        change_json(copy / SUMMARY, value=value, interval=[value - 3, value + 2.5])
    return tmp_path / "runs"


def listed(folder: Path, order: str = "date") -> dict[str, ListedRun]:
    return {run.name: run for run in list_runs(folder, order)}  # type: ignore[arg-type]


def shown(runs: list[ListedRun], width: int) -> list[str]:
    """The lines of the table in a terminal."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table(runs, width))
    return capture.get().splitlines()


def test_ended_runs_are_listed_as_their_summaries_say(folder):
    """In a comparison too; nothing is changed, and a run by itself is listed as well."""
    before = contents(folder)
    for name, run in listed(folder).items():
        path = folder / name
        summary = json.loads((path / SUMMARY).read_text())
        for key in ("method", "labels", "seed", "iterations", "metric", "value", "interval"):
            assert getattr(run, key) == summary[key]
        assert (run.state, run.done, run.problem) == ("ended", 4, None)
        assert run.bytes == sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert [*listed(folder / "both/supervised")] == ["supervised"]
    assert contents(folder) == before


def test_the_newest_or_the_best_comes_last(folder):
    """As it stands just above the prompt; what has no score comes first."""
    (folder / "both/simple-phtps" / SUMMARY).unlink()
    supervised, simple = "both/supervised", "both/simple-phtps"
    for order in ("date", "score", "name"):
        assert [*listed(folder, order)] == [simple, supervised]
    change_json(folder / supervised / ENVIRONMENT, started="2026-03-01T13:00:00+02:00")
    shutil.move(folder / simple, folder / "z")
    assert [*listed(folder)] == [supervised, "z"]
    assert [*listed(folder, "score")] == ["z", supervised]


def test_a_run_trains_as_long_as_a_process_holds_its_lock(folder):
    """Then it has the iterations of its log; stopped, those of the checkpoint that it goes on from."""
    run = folder / "both/supervised"
    (run / SUMMARY).unlink()
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    (run / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines if line["iteration"] <= 3))
    for file in (run / "checkpoint").glob("00000004.*"):
        file.rename(file.with_stem("00000001"))
    holding = [sys.executable, "-c", LOCKING, str(run)]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        trains = listed(folder)["both/supervised"]
    stopped = listed(folder)["both/supervised"]
    logged = max(line["iteration"] for line in lines if line["iteration"] <= 3)
    assert (trains.state, trains.done, trains.iterations) == ("training", logged, 4)
    assert (stopped.state, stopped.done, stopped.iterations) == ("stopped", 1, 4)
    assert (stopped.method, stopped.labels, stopped.seed, stopped.value) == ("supervised", 4, 3, None)
    shutil.rmtree(run / "checkpoint")
    assert listed(folder)["both/supervised"].done == 0


def test_a_suspended_run_is_said_to_be(folder, monkeypatch, capsys):
    """As Ctrl-Z leaves it, with how it goes on: there, and where somebody would train in its folder."""
    run = folder / "both/supervised"
    (run / SUMMARY).unlink()
    holding = [sys.executable, "-c", LOCKING, str(run)]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        try:
            os.waitpid(process.pid, os.WUNTRACED)  # once it is
            os.utime(run / lock.NAME, (0, 0))  # as if long ago
            found, watched = listed(folder)["both/supervised"], Watcher(folder).overview()
            monkeypatch.setattr(sys, "argv", ["oneway", "runs", str(folder)])
            with pytest.raises(SystemExit):
                main()
            with pytest.raises(UserError, match=f"is suspended. .* `kill -CONT {process.pid}`"), lock.hold(run):
                pass
        finally:
            os.kill(process.pid, signal.SIGCONT)
    assert (found.state, found.done, found.process) == ("suspended", 4, process.pid)
    assert [one["state"] for one in watched if one["name"] == "both/supervised"] == ["suspended"]
    said = " ".join(capsys.readouterr().out.split())
    assert f"both/supervised is suspended: `fg` in its terminal lets it go on, or `kill -CONT {process.pid}`." in said
    assert listed(folder)["both/supervised"].state == "stopped"


def test_a_run_with_a_method_of_its_own_is_listed(folder):
    """Ended or not."""
    run = folder / "both/supervised"
    (run / SUMMARY).unlink()
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("method: supervised", "method: two-views"))
    assert (listed(folder)["both/supervised"].method, listed(folder)["both/supervised"].state) == (
        "two-views",
        "stopped",
    )


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (SUMMARY, "{", "summary.json: damaged; not JSON"),
        (SUMMARY, "{}", "summary.json: damaged; it lacks method"),
        (ENVIRONMENT, None, "environment.json: no such file"),
        (ENVIRONMENT, "soon", "environment.json: damaged; started is 'soon', and no time"),
        ("config.yaml", "method: [", "config.yaml: not valid YAML"),
        ("split.json", "{}", "split.json: damaged; it lacks hash"),
    ],
)
def test_a_damaged_run_is_listed_with_the_reason(folder, name, content, reason):
    """And the others as they are."""
    run = folder / "both/supervised"
    if name in ("config.yaml", "split.json"):
        (run / SUMMARY).unlink()
    if content is None:
        (run / name).unlink()
    elif content == "soon":
        change_json(run / name, started=content)
    else:
        (run / name).write_text(content)
    found = listed(folder)
    assert found["both/supervised"].state == "unreadable"
    assert f"both/supervised/{reason}" in str(found["both/supervised"].problem)
    assert found["both/simple-phtps"].state == "ended"


def test_what_is_no_run_of_ours_hides_none(folder):
    """Another program's file of the same name; links, hidden folders and what lies within a run are left out."""
    (folder / "config.yaml").write_text("theirs: 1\n")
    (folder / "link").symlink_to(folder / "both")
    shutil.copytree(folder / "both/supervised", folder / ".cache/supervised")
    logger = folder / "both/supervised/wandb/files"
    logger.mkdir(parents=True)
    (logger / "config.yaml").write_text("theirs: 1\n")
    found = listed(folder)
    assert {name: run.state for name, run in found.items()} == {
        "runs": "unreadable",
        "both/supervised": "ended",
        "both/simple-phtps": "ended",
    }


def test_files_in_a_run_that_are_links_or_pipes_are_not_opened(folder, tmp_path):
    """Nor is a folder of checkpoints elsewhere."""
    simple, supervised = folder / "both/simple-phtps", folder / "both/supervised"
    for run in (simple, supervised):
        (run / SUMMARY).unlink()
    os.mkfifo(simple / ".lock")
    shutil.move(supervised / "checkpoint", tmp_path / "elsewhere")
    (supervised / "checkpoint").symlink_to(tmp_path / "elsewhere")
    (tmp_path / SUMMARY).write_text("{}")
    found = listed(folder)
    assert found["both/simple-phtps"].state != "unreadable"
    assert "a link, which is not followed" in str(found["both/supervised"].problem)
    (supervised / SUMMARY).symlink_to(tmp_path / SUMMARY)
    assert "a link, which is not followed" in str(listed(folder)["both/supervised"].problem)


@pytest.mark.skipif(os.geteuid() == 0, reason="the system's administrator may read everything")
def test_a_folder_that_only_its_owner_reads_is_named(folder):
    """It may be somebody's run."""
    (folder / "both/supervised").chmod(0)
    found = listed(folder)
    (folder / "both/supervised").chmod(0o755)
    assert "Permission denied" in str(found["both/supervised"].problem)
    assert found["both/simple-phtps"].state == "ended"


@pytest.mark.parametrize("width", [24, 50, 80, 100, 120, 200])
def test_a_table_fits_the_terminal(folder, width):
    """The whole name is there, folded, and what matters most beside it."""
    long = "facade-mt-colour-cutmix-drop-50-seed0-compare/mt-colour-cutmix-drop"
    shutil.copytree(folder / "both/supervised", folder / long)
    runs = list_runs(folder)
    lines = shown(runs, width)
    assert all(cell_len(line) <= width for line in lines)
    names = re.search(r"  \S", lines[0])
    folded = "".join(line[: names.start() if names else width].strip() for line in lines[1:])
    assert long in folded
    assert ("60.5" in "".join(lines)) == (width >= 50)
    assert ("2026-03-01" in "".join(lines)) == (width >= 80)
    if width == 200:
        assert len(lines) == 1 + len(runs)
        (ended,) = (line.split() for line in lines if line.startswith("both/simple-phtps"))
        assert ended[1:10] == ["simple-phtps", "4", "3", "4", "ended", "40.5", "37.5", "–", "43.0"]


def test_a_name_cannot_steer_the_terminal(folder):
    """Control characters and ends of lines are spelt out."""
    shutil.move(folder / "both/supervised", folder / "a\x1b[2J\nb")
    lines = shown(list_runs(folder), 120)
    assert len(lines) == 3
    assert any(line.startswith(r"a\x1b[2J\nb ") for line in lines)


def test_the_command_prints_a_table_or_json(folder, monkeypatch, capsys):
    """By default of the folder `runs`; with how to go on where a run was stopped, and the reason of what is damaged."""
    (folder / "both/supervised" / SUMMARY).unlink()
    (folder / "both/simple-phtps" / SUMMARY).write_text("{")
    monkeypatch.chdir(folder.parent)
    said = []
    for flags in ([], ["--json", "--sort", "name"]):
        monkeypatch.setattr(sys, "argv", ["oneway", "runs", *flags])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        said.append(capsys.readouterr().out)
    assert "Cannot be read: runs/both/simple-phtps/summary.json: damaged" in said[0]
    assert "oneway train RUN --resume" in said[0]
    found = json.loads(said[1])
    assert [(run["path"], run["state"]) for run in found] == [
        ("runs/both/simple-phtps", "unreadable"),
        ("runs/both/supervised", "stopped"),
    ]
    assert found[1]["started"] == "2026-03-01T15:30:00+00:00"


def test_a_list_does_without_torch(folder):
    """Of ended, stopped and damaged runs: it is there at once."""
    (folder / "both/supervised" / SUMMARY).unlink()
    check = (
        "import sys; sys.argv = ['oneway', 'runs', *sys.argv[1:]]\n"
        "from oneway.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", check, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "stopped" in done.stdout


def test_where_there_is_no_run_the_way_out_is_said(folder, tmp_path):
    """A folder without runs, one mistyped, a file."""
    (tmp_path / "none").mkdir()
    for name, reason in (
        ("none", "holds no run"),
        ("rnus", "no such file or folder. Did you mean .*runs"),
        ("runs/both/supervised/config.yaml", "not a folder"),
    ):
        with pytest.raises(UserError, match=reason):
            list_runs(tmp_path / name)
    done = oneway("runs", cwd=tmp_path / "none")
    assert (done.returncode, done.stdout) == (1, "")
    assert "runs: no such file or folder. Say where your runs are: oneway runs FOLDER" in done.stderr
