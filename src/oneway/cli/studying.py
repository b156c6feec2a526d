"""Verbs that answer questions about the method and the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from oneway.cli.app import STUDY, Json, Several, Switch, console, list_names, messages, verb
from oneway.config import Positive, read_yaml


@verb(STUDY)
def reproduce(
    name: str | None = None,
    /,
    *,
    data: Path | None = None,
    out: Path = Path("runs/reproduce"),
    seeds: Positive = 1,
    row: Several = (),
    column: Several = (),
    iterations: Positive | None = None,
    config: Path | None = None,
    side_by_side: Positive | None = None,
) -> None:
    """Train and draw what the paper shows: a table or a figure by name; without a name, list them.

    What has been trained before is not trained again; what was stopped goes on.

    Args:
        name: Which table or figure.
        data: Folder of the data set.
        out: Folder of the runs and the result.
        seeds: Number of runs of each setup; the result is their mean and deviation.
        row: Only this row of the table (a method); can be repeated.
        column: Only this column of the table (a number of labels); can be repeated.
        iterations: Length of every run, if not the paper's.
        config: YAML file of settings for every run of the table.
        side_by_side: How many runs train at once.
    """
    from oneway.tools.reproduce import EXPERIMENTS, Request, reproduce

    if name is None:
        list_names({known: experiment.shows for known, experiment in EXPERIMENTS.items()})
        return
    changes = {} if config is None else read_yaml(config)
    reproduce(name, Request(out, seeds, data, row, column, iterations, changes, side_by_side), console)


@verb(STUDY)
def bench(
    what: Literal["params", "step", "memory", "infer", "data"] | None = None,
    /,
    *,
    case: Several = (),
    profile: Switch = False,
    figure: Path | None = None,
    out: Path | None = None,
    as_json: Json = False,
) -> None:
    """Measure time, memory and speed against named baselines and the paper; without a name, list what can be measured.

    Needs no data. On a computer without a GPU it runs at a small size.

    Args:
        what: What to measure.
        case: Measure this case only; may be repeated.
        profile: With step, also show where the time goes, and the least time that the work needs.
        figure: With memory, draw the paper's figure into this file (.png, .svg or .pdf).
        out: Write everything that was measured to this file, as JSON.
        as_json: Print everything that was measured as JSON, instead of tables.
    """
    from oneway.runs import choose_device
    from oneway.tools.bench import BENCHES, Options, bench

    if what is None:
        list_names({known: one.shows for known, one in BENCHES.items()})
        return
    options = Options(choose_device("auto"), case, profile, figure)
    bench(what, options, messages if as_json else console, out, as_json)
