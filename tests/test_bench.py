"""The benchmarks: what they count is right, and each runs at a tiny size on the CPU. Nothing here is timed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn

from oneway import models
from oneway.common.errors import UserError
from oneway.config import Model, build
from oneway.engine.store import Store
from oneway.tools.bench import bench, data, infer, memory, predict, probe, start, step
from oneway.tools.bench import ranks as ranks_bench
from oneway.tools.bench.cases import (
    Case,
    compared_cases,
    configured,
    random_plan,
    random_samples,
    segmentation,
    training_cases,
)
from oneway.tools.bench.findings import Options, table
from oneway.tools.bench.memory import SavedTensors
from oneway.tools.bench.paper import TRAINING
from oneway.tools.bench.params import NETWORKS, count_parameters
from oneway.tools.bench.profile import Work, count_work, kind_of
from oneway.tools.bench.timing import Rates
from ranks import in_ranks

CPU = torch.device("cpu")
TINY = Model(backbone="resnet18", width=0.125)


def tiny(crop: int = 32) -> Case:
    return replace(segmentation("tiny", TINY, crop, (crop, 2 * crop), images=4, batch=2), classes=5)


def output_of(name: str, options: Options, file: Path | None = None) -> str:
    """What a benchmark prints."""
    console = Console(file=io.StringIO(), width=200)
    bench(name, options, console, file)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "parameters", "of_norms"),
    [
        ("swiftnet-rn18", 11_797_071, None),
        ("swiftnet-rn34", 21_905_231, None),
        ("deeplabv3plus-rn50", 40_351_667, None),
        ("deeplabv2-rn101", 43_901_068, 105_344),
        ("wrn-28-2", 1_467_610, None),
    ],
)
def test_networks_have_the_published_numbers_of_parameters(name, parameters, of_norms):
    """11.80, 21.91, 40.35 and, without batch norm, 43.80 millions in the paper; 1.47 of a WRN-28-2."""
    counted, in_norms = count_parameters(*NETWORKS[name])
    assert counted == parameters
    assert of_norms in (None, in_norms)


def test_parameters_stand_beside_the_papers(tmp_path):
    """The table shows both, and the file holds them with hardware, versions and command."""
    printed = output_of("params", Options(CPU, cases=("swiftnet-rn18",)), tmp_path / "params.json")
    assert "11,797,071" in printed
    assert "swiftnet-rn34" not in printed
    written = json.loads((tmp_path / "params.json").read_text(encoding="utf-8"))
    assert written["results"]["swiftnet-rn18"]["paper_millions"] == 11.80
    assert {"hardware", "versions", "command", "started"} <= written["environment"].keys()


@pytest.mark.parametrize(
    ("name", "options", "file", "reason"),
    [
        ("stepp", Options(CPU), None, "Did you mean 'step'"),
        ("step", Options(CPU, cases=("rn19-768",)), None, "Unknown case 'rn19-768'"),
        ("params", Options(CPU, profile=True), None, "--profile"),
        ("params", Options(CPU, figure=Path("f.png")), None, "--figure"),
        ("memory", Options(CPU, figure=Path("f.bmpp")), None, "f.bmpp"),
        ("params", Options(CPU), Path("nowhere/f.json"), "no folder nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_measured(name, options, file, reason):
    """Each in a sentence, and not after minutes."""
    with pytest.raises(UserError, match=reason):
        bench(name, options, Console(quiet=True), file)


def test_the_papers_minutes_are_milliseconds_of_an_iteration():
    """321 minutes of 92,750 iterations are 207.7 ms each."""
    assert TRAINING["rn18-768", "supervised"].milliseconds == pytest.approx(207.66, abs=0.01)


def test_columns_in_which_nothing_is_known_are_left_out():
    """A CPU has nothing to say about a GPU's memory."""
    made = table("t", ("a", "b", "c"), [("x", "–", "1"), None, ("y", "–", "–")])
    assert [column.header for column in made.columns] == ["a", "c"]


# Kernels, floors, memory


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16>", "convolution"),
        ("void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true>", "convolution"),
        ("void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var>", "batch norm"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float>", "batch norm"),
        ("void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16>", "pooling"),
        ("void at::native::(anonymous namespace)::upsample_bilinear2d_nhwc_out_frame<float>", "interpolation"),
        ("void at::native::(anonymous namespace)::cunn_SpatialSoftMaxBackward<float>", "losses"),
        ("_resize_backward", "interpolation"),
        ("_cross_entropy", "losses"),
        ("_warped_divergence", "losses"),
        ("_crop_colours", "crops, perturbation"),
        ("_perturb", "crops, perturbation"),
        ("_jitter_blur", "crops, perturbation"),
        ("_fold", "convolution"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", "convolution"),
        ("void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>", "copies"),
        ("Memset (Device)", "copies"),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>>",
            "elementwise",
        ),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimiser"),
        ("void something_else", "other"),
    ],
)
def test_kernels_are_told_apart_by_their_names(kernel, kind):
    """Names as a profiler showed them on an H200."""
    assert kind_of(kernel) == kind


def test_the_least_work_is_that_of_the_convolutions():
    """Two layers, by hand: multiplications and additions, and numbers read and written, with and without a gradient."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    x = torch.rand(1, 3, 16, 16)
    pixels = 16 * 16
    first, second = 2 * pixels * 8 * 3 * 9, 2 * pixels * 4 * 8

    with torch.no_grad():
        assert count_work(lambda: network(x), network) == Work(first + second, pixels * (3 + 8 + 8 + 4))
    learning = count_work(lambda: network(x).sum().backward(), network, network)
    # An image wants no gradient; features do.
    assert learning == Work(2 * first + 3 * second, pixels * (2 * (3 + 8) + 2 * (8 + 4) + 8))
    assert learning.milliseconds(Rates(flops=1e6, bytes=1e6), CPU)["bytes_ms"] == 4 * learning.numbers / 1000


def test_saved_tensors_are_counted_once_and_until_their_backward_pass():
    """The exponential saves its result, 4 kB; squaring that saves the same memory again; parameters do not count."""
    meter, weight = SavedTensors(), nn.Parameter(torch.ones(1000))
    with meter:
        y = weight.exp()
        assert meter.read() == (4000, 4000)
        y = y.square()
        assert meter.read() == (4000, 4000)
        loss = (y * weight).sum()  # y squared, and the weight itself
        assert meter.read() == (8000, 8000)
        loss.backward()
        assert meter.read() == (8000, 0)
    assert torch.allclose(weight.grad, 3 * torch.e**2 * torch.ones(1000))


def test_one_way_consistency_keeps_about_what_supervised_training_keeps():
    """The paper's figure: a teacher keeps nothing, and two-way consistency keeps the activations of two passes."""
    lines = {way: memory.measure(tiny(64), setup, "oneway", CPU) for way, setup in memory.WAYS.items()}
    one, two = lines["one-way"], lines["two-way"]
    supervised = memory.peak_of(one[: memory.SUPERVISED])
    assert [(line["number"], line["does"]) for line in one] == list(memory.LINES)
    assert one[2]["after_mib"] == one[3]["during_mib"] == one[7]["after_mib"] == two[7]["after_mib"] == 0
    assert supervised == memory.peak_of(two[: memory.SUPERVISED])
    assert memory.peak_of(one) < 1.3 * supervised
    assert memory.peak_of(two) > 1.9 * supervised


def test_memory_is_drawn(tmp_path):
    """As an SVG whose bytes depend on the numbers alone."""
    lines = [{"number": line, "does": does, "during_mib": 2.0, "after_mib": 1.0} for line, does in memory.LINES]
    ways = [
        {"case": "rn18-96", "batch": "(2, 2)", "engine": "oneway", "way": way, "lines": lines} for way in memory.WAYS
    ]
    files = [tmp_path / name for name in ("a.svg", "b.svg")]
    for file in files:
        memory.draw_memory(ways, file, "MiB")
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"<svg" in files[0].read_bytes()


# Each benchmark, tiny


def test_a_step_is_measured():
    """Every setup has a row with a time; all of it is JSON."""
    said: list[str] = []
    rows = step.measure_case(tiny(), CPU, None, said.append)
    assert [row["setup"] for row in rows] == ["supervised", "simple-phtps", "mt-phtps", "2w-c1", "one pass"]
    assert len(said) == 5
    for row in rows:
        assert row["oneway"]["milliseconds"] > 0
        assert row["plain"] is None, "on a CPU there is no other engine to compare with"
    json.dumps(rows)
    assert step.compared_table(rows, "ms").row_count == 5


@pytest.mark.parametrize("name", ["dlv2-64", "dlv3p-64"])
def test_methods_of_others_are_measured(name):
    """With what they ask of an iteration: pairs of images to mix, or two crops of each."""
    case = compared_cases(small=True)[name]
    store = Store.hold(random_samples(case), CPU)
    work = {setup: step.count_work_of_step(case, setup, store) for setup in case.setups}
    (supervised, other) = (work[setup].flops for setup in case.setups)
    assert 2 * supervised < other < 4 * supervised


def test_every_row_of_the_papers_table_is_measured():
    """Case and setup, with the paper's batches."""
    cases = training_cases(small=False) | compared_cases(small=False)
    assert all(setup in cases[name].setups for name, setup in TRAINING)
    batches = {name: cases[name].batch for name, _ in TRAINING}
    assert batches["dlv2-321-b10"] == "(10, 10)"
    assert {batches[name] for name in ("dlv2-321", "dlv2-448", "rn18-448-b4")} == {"(4, 4)"}


def test_a_step_is_profiled():
    """Its operations by kind, with the two floors; a teacher and a second student do more than a student alone."""
    case = tiny()
    store = Store.hold(random_samples(case), CPU)
    kinds = step.measure(case, "supervised", "oneway", store, profiled=True)["kinds"]
    assert kinds is not None
    assert min(kinds[kind] for kind in ("convolution", "batch norm", "losses", "interpolation", "optimiser")) > 0
    work = {setup: step.count_work_of_step(case, setup, store) for setup in ("supervised", "simple-phtps")}
    assert 2 * work["supervised"].flops < work["simple-phtps"].flops < 3 * work["supervised"].flops
    floors = work["supervised"].milliseconds(Rates(flops=1e9, bytes=1e9), CPU)
    row = {"case": "tiny", "setup": "supervised", "oneway": {"kinds": kinds}, "plain": None, "floors": floors}
    assert step.profile_table([row], "1 GFLOP/s").row_count == len(kinds) + 3


def test_inference_is_measured():
    """Eager and optimised, with the loss and with classes; the memory layout changes logits by rounding alone."""
    row = infer.measure("swiftnet-rn18", TINY, (32, 64), CPU, classes=5)
    assert row["difference"] < 1e-4
    assert all(row[kind][ending] > 0 for kind in ("eager", "optimised") for ending in ("loss", "classes"))
    json.dumps(row)
    assert [infer.infer_table([row], ending).row_count for ending in infer.ENDINGS] == [1, 1]


@pytest.mark.parametrize("feed", data.FEEDS)
def test_feeds_are_measured(feed, tmp_path):
    """Each alone and in a loop with the step."""
    case = tiny()
    samples = replace(random_samples(case), pool=data.pool_of_photographs(case, tmp_path))
    row = data.measure(case, feed, samples, CPU)
    assert ("pool" in row["place"]) == (feed == "pool")
    assert min(row["images_per_second"], row["step_images_per_second"], row["loop_images_per_second"]) > 0
    assert 0 < row["busy"] <= 1
    json.dumps(row)
    assert data.data_table([row]).row_count == 1


def test_what_processes_exchange_is_counted():
    """Of each norm twice forwards and twice back, as two passes learn; a count for each loss; all gradients at once."""
    case = tiny()
    network = models.build(case.config.model, case.classes, seed=0)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    weights = sum(parameter.numel() for parameter in network.parameters())
    for row in in_ranks(2, lambda ranks: ranks_bench.measure(case, "simple-phtps", ranks, CPU)):
        assert row["exchanges"] == 4 * norms + 2
        assert row["gradient_bytes"] == 4 * (weights + 2)  # with the two losses
        assert min(row["alone_ms"], row["together_ms"]) > 0
        assert not row["captured"]
        json.dumps(row)
        assert ranks_bench.cost_table([row]).row_count == 1
        assert ranks_bench.model_table([row]).row_count == 1


def test_a_model_of_many_processes():
    """By hand: 100 exchanges of 10 µs and 2 · 7/8 · 8 MB at 14 GB/s are 1 ms each, beside 8 ms."""
    row = {"alone_ms": 8.0, "exchanges": 100, "gradient_bytes": 8_000_000}
    network = ranks_bench.Network(8, 10, 14e9)
    assert ranks_bench.efficiency(row, 8.0, network) == pytest.approx(0.8)
    assert ranks_bench.room(row, 8.0, ranks_bench.Network(8, 10, 1e30)) == pytest.approx(8 / 0.9 * 10 - 80)


@pytest.mark.parametrize("small", [False, True], ids=["full", "small"])
def test_cases_are_runs_that_could_be_trained(small):
    """Their configurations agree with themselves, and their images fill a batch."""
    for name, case in (training_cases(small) | compared_cases(small)).items():
        for setup in case.setups:
            build(configured(case, setup, "oneway").model_dump(), name)
        plan = random_plan(case)
        assert max(plan.batch_labelled, plan.batch_unlabelled) <= len(plan.unlabelled)


def test_predict_measures_the_pipeline_beside_its_stages(monkeypatch, tmp_path):
    """Rates of each stage, of all together and of a plain loop; its masks are those that the loop would write."""
    monkeypatch.setattr(predict, "SIZE", (64, 96))
    monkeypatch.setattr(predict, "FILES_ON_CPU", 3)
    monkeypatch.setattr(predict, "ROUNDS_ON_CPU", 1)
    monkeypatch.setattr(predict, "CASES", {"tiny": TINY})
    printed = output_of("predict", Options(CPU), tmp_path / "predict.json")
    assert "of what" in printed
    (row,) = json.loads((tmp_path / "predict.json").read_text())["results"]
    rates = row["files_per_second"]
    assert set(rates) == {"plain", "decode", "network", "write", "pipeline"}
    assert rates[row["slowest"]] == min(rates[stage] for stage in predict.STAGES)
    assert row["ratio"] == pytest.approx(rates["pipeline"] / rates["plain"])
    model, (photo, *_) = predict.make_predictor(TINY, CPU), predict.make_photos(tmp_path / "photos", 3)
    predict.plain(model, photo, tmp_path / "out")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "out/png/00000.png")), model.predict(photo).labels)


def test_every_part_of_a_start_is_a_function_that_is_there():
    """A probe that waits for what has got another name would count its time as something else."""
    for place in (*probe.PARTS, probe.STEPS):
        module, _, path = place.partition(":")
        assert callable(attrgetter(path)(import_module(module))), place
    assert {*probe.PARTS.values(), "imports", "first iterations", "rest"} < {*start.PARTS}


def test_start_tells_the_parts_of_a_process_apart(monkeypatch, tmp_path):
    """All the time of a real one, by the wall clock and of processors; a verb that fails is not measured."""
    words = ["train", "moons", "--train.iterations", "5", "--train.device", "cpu", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(start, "verbs_in", lambda *place: {"train": words})
    printed = output_of("start", Options(CPU), tmp_path / "start.json")
    assert "first iterations" in printed
    (row,) = json.loads((tmp_path / "start.json").read_text())["results"]
    parts = row["parts"]
    assert {"imports", "network", "first iterations", "work", "validation", "saving", "report", "exit"} <= {*parts}
    for unit in ("seconds", "processor_seconds"):
        assert sum(part[unit] for part in parts.values()) == pytest.approx(row[unit], rel=1e-3, abs=0.05)
    assert parts["imports"]["processor_seconds"] > 10 * parts["work"]["processor_seconds"]
    with pytest.raises(UserError, match="no such file or folder"):
        start.measure(["eval", str(tmp_path / "none")], tmp_path)
