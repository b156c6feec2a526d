"""`oneway bench memory`: the paper's table and figure of memory during and after each line of Algorithm 1."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import torch
from rich.table import Table
from torch import Tensor

from oneway.common.drawing import Axes, Figure, FigureCanvasBase, style
from oneway.common.errors import UserError
from oneway.config import Config, Model
from oneway.draws import draw_perturbation, on_device
from oneway.engine.state import TrainingState
from oneway.engine.step import backward, settings_of
from oneway.engine.warm import cudnn_autotune
from oneway.methods import METHODS
from oneway.methods.interface import Batch, Loss
from oneway.ops import references
from oneway.perturb import Perturbation, PhTPS, phtps
from oneway.tools.bench.cases import EFFICIENT, Case, Engine, configured, engines, fresh_state, segmentation
from oneway.tools.bench.findings import Findings, Options, Result, Say, number, ratio, table, times
from oneway.tools.bench.paper import OVERHEAD
from oneway.tools.bench.timing import MIB, release

WAYS = {"one-way": "simple-phtps", "two-way": "2w-c1"}
"""Names of the paper's figure, and the setups they are."""

LINES = (
    (7, "labelled forward"),
    (8, "cross-entropy"),
    (9, "backward"),
    (13, "clean forward"),
    (14, "perturb"),
    (14, "perturbed forward"),
    (16, "divergence"),
    (17, "backward"),
)
"""Lines of Algorithm 1 in the order they run. The clean forward pass is the teacher's, or in two-way the student's."""

SUPERVISED = 3
"""How many of the first lines a supervised step does."""

Inputs = tuple[Tensor, Tensor, Tensor]

COLOURS = {"one-way": "#2b6cb0", "two-way": "#c05621"}
ENGINES = {"oneway": "this engine", "plain": "plain PyTorch"}
BAR_WIDTH = 0.4


def memory_cases(small: bool) -> dict[str, Case]:
    """SwiftNet-RN18 and RN34 as in the paper's figure, or narrow ones on small crops; and with efficient encoders."""
    crop, batch, width = (96, 2, 0.5) if small else (768, 8, 1.0)
    models = {name: Model(backbone=f"resnet{name[2:]}", width=width) for name in ("rn18", "rn34")} | EFFICIENT
    cases = [segmentation(f"{name}-{crop}", model, crop, (crop, crop), batch=batch) for name, model in models.items()]
    return {case.name: case for case in cases}


def bench_memory(options: Options, say: Say) -> Findings:
    """Measure and draw both ways of consistency, by both engines."""
    figure = options.figure
    if figure is not None and figure.suffix.removeprefix(".") not in FigureCanvasBase.filetypes:
        raise UserError(f"{figure}: unknown kind of picture '{figure.suffix}'. Use .png, .svg or .pdf.")
    results: list[Result] = []
    for case in options.choose(memory_cases(options.small)).values():
        for engine in engines(case, options.device):
            for way, setup in WAYS.items():
                lines = measure(case, setup, engine, options.device)
                peak, supervised = peak_of(lines), peak_of(lines[:SUPERVISED])
                say(f"{case.name:9} {engine:7} {way}  {peak:7.1f} MiB, {peak / supervised:.2f}× its supervised part")
                key = {"case": case.name, "batch": case.batch, "engine": engine, "way": way}
                results.append({**key, "lines": lines, "peak_mib": peak})
    unit = "MiB kept for the backward pass" if options.small else "MiB allocated"
    notes = [
        f"{unit}: at most while a line runs / when it is done. ÷ supervised: the peak over that of lines 7 to 9 of the "
        "same iteration; paper: line 16 over line 9 of plain PyTorch, one-way."
    ]
    if options.small:
        notes.append(
            "A CPU does not count what is allocated. These are the tensors that autograd holds for a backward pass, "
            "each piece of memory once, without weights, gradients and temporary results."
        )
    if figure is not None:
        draw_memory(results, figure, unit)
        notes.append(f"Figure: {figure}")
    tables = [memory_table(list(of_case), unit) for _, of_case in groupby(results, itemgetter("case"))]
    return Findings(tables, results, notes)


def memory_table(results: list[Result], unit: str) -> Table:
    """One case: a row for each line of the algorithm, a column for each way of each engine."""
    ratios = [ratio(row["peak_mib"], peak_of(row["lines"][:SUPERVISED])) for row in results]
    theirs = [OVERHEAD.get(row["case"]) if row["way"] == "one-way" else None for row in results]
    shown = [
        *(
            (f"{line:2} {does}", *(f"{at['during_mib']:,.1f} / {at['after_mib']:,.1f}" for at in measured))
            for (line, does), *measured in zip(LINES, *(row["lines"] for row in results), strict=True)
        ),
        None,
        ("peak", *(number(row["peak_mib"]) for row in results)),
        ("÷ supervised", *map(times, ratios)),
        *([("paper", *map(times, theirs))] if any(theirs) else []),
    ]
    headings = ("line of Algorithm 1", *(f"{row['engine']}, {row['way']}" for row in results))
    return table(f"{results[0]['case']}, batch {results[0]['batch']}: {unit}", headings, shown)


def draw_memory(results: list[Result], file: Path, unit: str) -> None:
    """Draw what `bench_memory` measured into a file, whose ending is its format."""
    rows, columns = (list(dict.fromkeys(row[key] for row in results)) for key in ("engine", "case"))
    with style({"svg.hashsalt": "memory", "font.size": 9}):
        figure = Figure(figsize=(4.2 * len(columns), 0.8 + 2.4 * len(rows)), layout="constrained")
        panels = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey=True)
        for axes_of_row, engine in zip(panels, rows, strict=True):
            for axes, case in zip(axes_of_row, columns, strict=True):
                _draw_panel(axes, [row for row in results if (row["engine"], row["case"]) == (engine, case)])
                axes.set_title(f"SwiftNet-{case.upper()}, {ENGINES[engine]}")
            axes_of_row[0].set_ylabel(unit)
        figure.savefig(file, dpi=200, metadata={"Date": None} if file.suffix == ".svg" else None)


def _draw_panel(axes: Axes, results: list[Result]) -> None:
    for place, row in enumerate(results):
        lines, colour = row["lines"], COLOURS[row["way"]]
        x = [index + (place - 0.5) * BAR_WIDTH for index in range(len(lines))]
        axes.bar(x, [line["during_mib"] for line in lines], BAR_WIDTH, color=colour, alpha=0.35)
        axes.bar(x, [line["after_mib"] for line in lines], BAR_WIDTH, color=colour, label=row["way"])
    labels = [f"{line} {does}" for line, does in LINES]
    axes.set_xticks(range(len(labels)), labels, rotation=40, ha="right", rotation_mode="anchor")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="pale: during, full: after", frameon=False, fontsize=8, title_fontsize=8)


def peak_of(lines: list[Result]) -> float:
    """The largest memory of several lines."""
    return max(line["during_mib"] for line in lines)


def measure(case: Case, setup: str, engine: Engine, device: torch.device) -> list[Result]:
    """The memory of each line of the second iteration, as in the paper: by then, the optimiser has its moments."""
    release(device)
    on_gpu = device.type == "cuda"
    meter: AllocatedMemory | SavedTensors = AllocatedMemory(device) if on_gpu else SavedTensors()
    config = configured(case, setup, engine)
    state = fresh_state(config, case.classes, device)
    inputs = random_inputs(case, device)
    with (
        cudnn_autotune(engine == "oneway"),
        references(engine == "plain"),
        torch.autocast(device.type, torch.bfloat16, on_gpu and engine != "plain"),
    ):
        for _ in range(2):
            state.optimiser.zero_grad()
            with meter:
                lines = trace(state, inputs, config, meter)
            state.optimiser.step()
    return lines


def random_inputs(case: Case, device: torch.device) -> Inputs:
    """x_l, y_l and x_u of noise."""
    assert case.config.jitter.crop is not None
    labelled, unlabelled = case.config.train.batch_labelled, case.config.train.batch_unlabelled
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(labelled + unlabelled, 3, *case.config.jitter.crop, generator=generator).to(device)
    y = torch.randint(case.classes, (labelled, *case.config.jitter.crop), generator=generator).to(device)
    return x[:labelled].clone(), y, x[labelled:].clone()


def trace(state: TrainingState, inputs: Inputs, config: Config, meter: AllocatedMemory | SavedTensors) -> list[Result]:
    """Run Algorithm 1 itself, with a reading of the meter wherever one of its lines ends."""
    x_l, y_l, x_u = inputs
    lines: list[Result] = []

    def ended(kind: str = "") -> None:
        during, after = meter.read()
        line, does = LINES[len(lines)]
        assert kind in does, "a line of the algorithm was passed over"
        lines.append({"number": line, "does": does, "during_mib": during / MIB, "after_mib": after / MIB})

    class Watched(PhTPS):
        def image(self, x: Tensor) -> Tensor:
            perturbed = super().image(x)
            ended("perturb")
            return perturbed

    def perturbation(x: Tensor, view: int) -> Perturbation:
        draw = on_device(draw_perturbation(0, 0, len(x)), x.device)
        with torch.autocast(x.device.type, enabled=False):
            found = phtps(draw, x, config.perturb)
        return Watched(found.colours, found.warp)

    batch = Batch(lambda: (x_l, y_l), lambda: x_u, perturbation)
    losses = METHODS[config.method].generator()(state.models, batch, settings_of(config, config.train.alpha))
    hook = state.student.register_forward_hook(lambda *_: ended("forward"))
    meter.read()
    try:
        for _ in range(2):
            loss = next(losses)
            assert isinstance(loss, Loss)
            ended()
            backward((loss,), state.guard.parameters)
            del loss
            ended("backward")
    finally:
        hook.remove()
    return lines


class AllocatedMemory(nullcontext[None]):
    """Device memory in use, beyond what was in use at first."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.at_first = torch.cuda.memory_allocated(device)

    def read(self) -> tuple[int, int]:
        """Bytes at most since the last reading, and now; the allocator does not wait for the device."""
        most, now = torch.cuda.max_memory_allocated(self.device), torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        return most - self.at_first, now - self.at_first


class SavedTensors(torch.autograd.graph.saved_tensors_hooks):
    """Within its block, what autograd saves for backward passes: every piece of memory once, parameters left out."""

    def __init__(self) -> None:
        super().__init__(self._pack, self._unpack)
        self.holders: Counter[int] = Counter()
        self.now = self.most = 0

    def read(self) -> tuple[int, int]:
        """Bytes held at most since the last reading, and now."""
        most, self.most = self.most, self.now
        return most, self.now

    def _pack(self, tensor: Tensor) -> Tensor | _Held:
        return tensor if isinstance(tensor, torch.nn.Parameter) else _Held(tensor, self)

    def _unpack(self, packed: Tensor | _Held) -> Tensor:
        return packed.tensor if isinstance(packed, _Held) else packed

    def count(self, place: int, size: int, holders: int) -> None:
        """Add holders of a piece of memory (or take some away); it counts as held while it has any."""
        before = self.holders[place]
        self.holders[place] += holders
        self.now += size * (bool(self.holders[place]) - bool(before))
        self.most = max(self.most, self.now)


class _Held:
    """A saved tensor; autograd drops it when its backward pass is over."""

    def __init__(self, tensor: Tensor, meter: SavedTensors) -> None:
        self.tensor, self.meter = tensor.detach(), meter  # without its history, which would hold this in turn
        storage = tensor.untyped_storage()
        self.place, self.size = storage.data_ptr(), storage.nbytes()
        meter.count(self.place, self.size, 1)

    def __del__(self) -> None:
        self.meter.count(self.place, self.size, -1)
