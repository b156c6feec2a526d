"""The accelerated way through an iteration, without a GPU: which kernels it takes, and that it learns the same.

Functions named `fact_…` run in a process of their own, in Triton's interpreter where there is no GPU.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from algorithms import NoWaiting
from kernel_facts import DEVICE, assert_facts
from oneway import data, models, ops
from oneway.config import Config
from oneway.draws import Plan, columns_of, draw, on_device
from oneway.engine import optim
from oneway.engine.capture import CapturedStep, FixedTable, choose_step, is_consistent, one_training_on_gpu
from oneway.engine.start import accelerated, plan_of, training_state
from oneway.engine.state import TrainingState
from oneway.engine.step import add_gradients, mixed_batch, settings_of, step
from oneway.engine.store import Store
from oneway.methods import METHODS
from oneway.models.features import feature_channels
from oneway.models.fuse import FusedNorm
from small_runs import small_streets

PLAN = Plan(0, (0, 1), tuple(range(8)), 2, 2, (0.7, 1.4), True, views=2)
CPU = torch.device("cpu")


def test_facts_about_choices_hold():
    """Everything below about them."""
    assert_facts(__file__, "choice")


@pytest.mark.parametrize(
    "method",
    [
        "simple-phtps",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("mt-cutmix", "mt-colour-cutmix-drop", "fixmatch-ema", "vat-entmin")
        ),
    ],
)
def test_facts_about_the_step_hold(method):
    """The whole step in the interpreter, against the plain one."""
    assert_facts(__file__, f"step and {method}")


def test_a_cpu_takes_the_references():
    """Kernels run on a GPU, or where Triton interprets them."""
    assert not ops.kernels_run(CPU)
    assert not accelerated(small_streets(), CPU)


def test_the_table_of_draws_stays_in_place():
    """A captured step reads its draws from the same memory in every iteration, and finds those of the iteration."""
    tables = [draw(PLAN, iteration) for iteration in (0, 7)]
    fixed = FixedTable(tables[0], CPU)
    places = []
    for table in tables:
        fixed.fill(table)
        columns = list(columns_of(fixed.draws))
        assert len(columns) > 20
        assert all(torch.equal(column, expected) for column, expected in zip(columns, columns_of(table), strict=True))
        places.append([column.data_ptr() for column in columns])
    assert places[0] == places[1]
    assert all(place % 8 == 0 for place in places[0])


def test_alpha_lies_where_a_captured_step_reads_it():
    """A schedule changes a number on the device, and no function that could have been captured."""
    config = small_streets(method="simple-phtps")
    state, store = world(config)
    place, advance = state.alpha.data_ptr(), choose_step(state, store, config, print)
    for alpha in (0.25, 0.75):
        assert advance(draw(PLAN, 0), alpha).keys() == {"supervised", "consistency"}
        assert state.alpha.item() == alpha
        assert state.alpha.data_ptr() == place
    assert advance(draw(PLAN, 0), 0.0).keys() == {"supervised"}


def test_an_average_may_begin_as_a_plain_mean():
    """Decay min(1 − 1/t, 0.75): after each of three steps the mean of the students so far, from then on the decay."""
    config = small_streets(method="mt-phtps", train={"teacher_decay": 0.75, "teacher_warm_up": True})
    state, store = world(config)
    place, advance = state.warm_up.data_ptr(), choose_step(state, store, config, print)
    students, averages = [], []
    for iteration in range(6):
        share = optim.warm_up_at(config.train, iteration)
        assert share == (1 / (iteration + 1) if iteration < 3 else 0)
        advance(draw(PLAN, iteration), 0.5, share)
        students.append(state.student.head[2].weight.detach().double().clone())
        averages.append(state.teacher.head[2].weight.double().clone())
        assert state.warm_up.data_ptr() == place
    assert torch.equal(averages[0], students[0])
    for count in (1, 2, 3, 4):  # at the fourth, 1/t is the share that the decay leaves
        torch.testing.assert_close(averages[count - 1], sum(students[:count]) / count, rtol=1e-5, atol=1e-7)
    for t in (4, 5):
        torch.testing.assert_close(averages[t], 0.75 * averages[t - 1] + 0.25 * students[t], rtol=1e-5, atol=1e-7)
    assert not optim.warm_up_at(small_streets(method="mt-phtps").train, 0)


# Left out: forward-mode differentiation, which cannot be watched, and `F.one_hot`, which waits on a CPU alone.
@pytest.mark.parametrize(
    "method", [name for name, row in METHODS.items() if not row.noise and row.loss != "confident-l2"]
)
def test_what_every_method_computes_can_be_captured(method):
    """Crops, perturbations, losses and gradients ask the device for no number."""
    config = small_streets(method=method, jitter={"crop": (32, 48)}, train={"batch_labelled": 4, "batch_unlabelled": 4})
    dataset = data.load(config.data)
    networks = [models.build(config.model, len(dataset.classes), seed) for seed in range(METHODS[method].students)]
    state = training_state(networks, (), config, DEVICE)
    store = Store.hold(dataset.read("train"), DEVICE)
    plan = plan_of(config, range(4), range(8), network=state.student)
    batch = mixed_batch(store, on_device(draw(plan, 0), DEVICE), config)
    weights = torch.ones(len(dataset.classes), device=DEVICE)
    losses = METHODS[method].generator()(state.models, batch, settings_of(config, state.alpha, weights))
    with NoWaiting():
        measured = add_gradients(losses, state.guard.parameters)
    assert measured["supervised"] > 0


@pytest.fixture
def uncaptured(monkeypatch):
    """A captured step whose warm-up is over: what it would run is counted instead, and no GPU is needed."""
    if DEVICE.type == "cpu":
        monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(CapturedStep, "_compile", lambda self, consistent: None)
    said, ran = [], []
    captured = CapturedStep(*world(small_streets(method="simple-phtps")), small_streets(), said.append)
    captured.ordinary_steps_left = {True: 0, False: 0}
    monkeypatch.setattr(captured, "_on_side_stream", ran.append)
    return captured, said, ran


@pytest.mark.parametrize(("devices", "waits"), [(("cuda:0", "cuda:1"), True), (("cpu", "cpu"), False)])
def test_threads_that_train_on_gpus_take_turns(devices, waits):
    """Also on two of them: streams' pending work and captures are the process's. A thread does not wait for itself."""
    first, second = map(torch.device, devices)
    inside = threading.Event()

    def train():
        with one_training_on_gpu(second):
            inside.set()

    other = threading.Thread(target=train)
    with one_training_on_gpu(first), one_training_on_gpu(first):
        other.start()
        assert inside.wait(0.3 if waits else 30) != waits
    other.join(30)
    assert inside.is_set()


def test_memory_that_ends_while_capturing_is_no_other_failure(uncaptured, monkeypatch):
    """It ends the run as it would in any step, and nothing is said about capturing."""
    captured, said, ran = uncaptured

    def full(consistent):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(captured, "_capture", full)
    with pytest.raises(torch.OutOfMemoryError):
        captured(draw(PLAN, 0), True)
    assert said == ran == []


@pytest.mark.parametrize(
    ("message", "told"), [("not permitted when stream is capturing\nmore", "not permitted"), ("", "RuntimeError")]
)
def test_a_step_that_cannot_be_captured_runs_all_the_same(uncaptured, monkeypatch, message, told):
    """The reason is said once, and ordinary steps go on."""
    captured, said, ran = uncaptured

    def refused(consistent):
        raise RuntimeError(message)

    monkeypatch.setattr(captured, "_capture", refused)
    for iteration in range(3):
        captured(draw(PLAN, iteration), True)
    assert ran == [True] * 3
    assert len(said) == 1
    assert told in said[0]


def test_unlabelled_images_take_part_where_they_count():
    """At α = 0 the step is a supervised one, whatever the method; entropy alone is the exception."""
    assert is_consistent(Config(method="simple-phtps"), 0.1)
    assert not is_consistent(Config(method="simple-phtps"), 0.0)
    warm_up = Config(method="vat-entmin").changed(train={"alpha": 1.0})
    assert not is_consistent(warm_up, 0.0)
    assert is_consistent(warm_up.changed(train={"alpha": 0.0}), 0.0)


def fact_choice_is_made_by_device_and_by_the_block():
    """Every operation takes its kernel, unless references are asked for."""
    assert ops.kernels_run(DEVICE)
    with ops.references():
        assert not ops.kernels_run(DEVICE)
        with ops.references(only=False):
            assert ops.kernels_run(DEVICE)
    assert accelerated(small_streets(), DEVICE)
    assert not accelerated(small_streets(train={"engine": "plain"}), DEVICE)


def world(config: Config) -> tuple[TrainingState, Store]:
    dataset = data.load(config.data)
    network = models.build(config.model, len(dataset.classes), seed=0)
    state = training_state([network], (), config, DEVICE)
    state.alpha.fill_(0.7)
    return state, Store.hold(dataset.read("train"), DEVICE)


def fact_choice_of_the_network_is_made_once():
    """An accelerated network has its norms joined with what follows them, a plain one has not."""
    fast, plain = (world(small_streets(train={"engine": engine}))[0].student for engine in ("auto", "plain"))
    assert any(isinstance(module, FusedNorm) for module in fast.modules())
    assert not any(isinstance(module, FusedNorm) for module in plain.modules())


@pytest.mark.parametrize("method", ["simple-phtps", "mt-cutmix", "mt-colour-cutmix-drop", "fixmatch-ema", "vat-entmin"])
def fact_step_learns_what_the_plain_one_learns(method):
    """An iteration, with crops, perturbation, losses, norms and upsampling by kernels, against plain PyTorch."""
    results = []
    for engine in ("auto", "plain"):
        config = small_streets(
            method=method,
            jitter={"crop": (16, 24)},
            optimiser={"name": "sgd", "learning_rate": 0.01},
            train={"engine": engine, "precision": "float32", "balance": "none"},
        )
        state, store = world(config)
        row, channels = METHODS[method], sum(feature_channels(state.student))
        needs = {
            "noise_shape": (3, 16, 24) if row.noise else (0,),
            "droppable_channels": channels if row.drops_channels else 0,
        }
        with ops.references(engine == "plain"):
            measured = [step(state, store, on_device(draw(replace(PLAN, **needs), 0), DEVICE), config)]
        results.append((measured, state.student.state_dict(), state.teacher.state_dict()))
    (fast_losses, *fast), (plain_losses, *plain) = results
    for ours, theirs in zip(fast_losses, plain_losses, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-3, abs=1e-5), name
    for ours, theirs in zip(fast, plain, strict=True):
        for name, value in theirs.items():
            torch.testing.assert_close(ours[name], value, rtol=1e-2, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}")
