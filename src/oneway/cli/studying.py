"""Verbs that answer questions about the method and the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from oneway.cli.app import STUDY, Json, Several, Switch, console, list_names, messages, results, verb
from oneway.config import Positive, merge, read_yaml


@verb(STUDY)
def reproduce(
    name: str | None = None,
    /,
    *,
    data: Path | None = None,
    out: Path = Path("runs/reproduce"),
    seeds: Positive = 1,
    methods: Annotated[Several, Parameter(name=("--methods", "--row"), consume_multiple=True)] = (),
    labels: Annotated[Several, Parameter(name=("--labels", "--column"), consume_multiple=True)] = (),
    drives: Annotated[Several, Parameter(consume_multiple=True)] = (),
    over: str | None = None,
    iterations: Positive | None = None,
    weights: str | None = None,
    table_only: Switch = False,
    config: Path | None = None,
    side_by_side: Positive | None = None,
) -> None:
    """Train and draw what the paper shows, or a table that tells methods apart, by name; without a name, list them.

    What has been trained before is not trained again; what was stopped goes on.

    Args:
        name: Which table or figure.
        data: Folder of the data set.
        out: Folder of the runs and the result.
        seeds: Number of runs of each setup; the result is their mean and deviation.
        methods: Only these rows of the table, which are methods in most.
        labels: Only these columns of the table, which are numbers of labels, or shares; lists of images are for train.
        drives: With camvid, hold out only these drives.
        over: With camvid and facade, the row with which others are compared, seed by seed, if not labels alone.
        iterations: Length of every run, if not the table's.
        weights: Initial weights of every run: imagenet, a file, or none.
        table_only: Train nothing; write the table of the runs that are there.
        config: YAML file of settings for every run of the table.
        side_by_side: How many runs train at once.
    """
    from oneway.tools.reproduce import EXPERIMENTS, Request, reproduce

    if name is None:
        list_names({known: experiment.shows for known, experiment in EXPERIMENTS.items()})
        return
    changes = {} if config is None else read_yaml(config)
    if weights is not None:
        given = str(Path(weights).absolute()) if Path(weights).exists() else weights
        changes = merge(changes, {"model": {"weights": given}})
    asked = Request(
        out,
        seeds,
        data,
        methods,
        labels,
        iterations,
        changes,
        side_by_side,
        drives=drives,
        over=over,
        table_only=table_only,
    )
    reproduce(name, asked, console)


@verb(STUDY)
def bench(
    what: Literal["params", "step", "memory", "infer", "predict", "start", "data", "ranks"] | None = None,
    /,
    *,
    case: Several = (),
    profile: Switch = False,
    figure: Path | None = None,
    runtime: Annotated[Several, Parameter(consume_multiple=True)] = (),
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
        runtime: With infer, compare these on the CPU, whatever of them is installed: pytorch, onnxruntime, openvino,
            onnxruntime-int8, openvino-int8.
        out: Write everything that was measured to this file, as JSON.
        as_json: Print everything that was measured as JSON, instead of tables.
    """
    from oneway.runs import choose_device
    from oneway.tools.bench import BENCHES, Options, bench

    if what is None:
        list_names({known: one.shows for known, one in BENCHES.items()})
        return
    options = Options(choose_device("cpu" if runtime else "auto"), case, profile, figure, runtime)
    bench(what, options, messages if as_json else results, out, as_json)
