"""Before the first step: kernels are compiled side by side and not launched, and a network stays what it was."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import nullcontext, suppress
from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from forks import run_code
from oneway import data, models
from oneway.config import Config, Jitter
from oneway.config.recipes import recipe
from oneway.draws import draw
from oneway.engine import warm
from oneway.engine.start import plan_of, training_state
from oneway.engine.step import step
from oneway.engine.store import Store
from oneway.methods import METHODS
from oneway.models.swiftnet import SwiftNet
from oneway.ops import ahead, backend, compilers, rows
from oneway.runs.checkpoint.state import tensors_of
from small_runs import small_streets

CPU = torch.device("cpu")


@pytest.fixture
def rehearsals(monkeypatch):
    """Names of the kernels that rehearsals launch, as on a GPU, of which none is compiled or runs."""
    if ahead.JITFunction is None:
        pytest.skip("no Triton")
    launched, usual = [], ahead.JITFunction.run

    def without_a_gpu(rehearse, compilers):
        monkeypatch.setattr(ahead.JITFunction, "run", lambda self, *arguments, **options: launched.append(self))
        with torch.autograd.set_multithreading_enabled(False), ahead._Zeros():
            rehearse()
        monkeypatch.setattr(ahead.JITFunction, "run", usual)

    monkeypatch.setattr(backend, "INTERPRETED", True)
    monkeypatch.setattr(warm, "compile_ahead", without_a_gpu)
    return launched


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"supervised-colour-cutmix-aug"}))  # takes larger batches
def test_a_step_is_rehearsed_and_nothing_has_changed(rehearsals, method):
    """With zeros for what kernels would have written, each method finds its way; weights and moments stay."""
    config = small_streets(method=method)
    dataset = data.load(config.data)
    networks = [models.build(config.model, len(dataset.classes), seed) for seed in range(METHODS[method].students)]
    state, store = training_state(networks, (), config, CPU), Store.hold(dataset.read("train"), CPU)
    table = draw(plan_of(config, range(4), range(8), network=state.student), 0)
    before, ended = deepcopy(tensors_of(state)), []
    warm.compile_kernels(state, lambda copy: ended.append(step(copy, store, table, config)), config, CPU)
    assert "supervised" in ended[0]
    assert len(set(rehearsals)) >= 15
    after = tensors_of(state)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], value) for name, value in after.items())
    assert all(parameter.grad is None for parameter in state.student.parameters())


@pytest.mark.parametrize("changes", [{"jitter": {"crop": None}}, {"model": {"factory": "somewhere:network"}}])
def test_strangers_and_points_are_left_alone(monkeypatch, changes):
    """Whose kernels are not known."""
    monkeypatch.setattr(warm, "compile_ahead", lambda rehearse, compilers: pytest.fail("compiles"))
    config = Config(jitter=Jitter(crop=(32, 32))).changed(**changes)
    warm.compile_kernels(None, lambda copy: pytest.fail("steps"), config, CPU)


def test_a_failing_rehearsal_ends_no_run(monkeypatch):
    """What is wrong, the first step says."""
    monkeypatch.setattr(warm, "compile_ahead", lambda rehearse, compilers: rehearse())
    warm.compile_kernels(nn.Identity(), lambda copy: 1 / 0, Config(jitter=Jitter(crop=(32, 32))), CPU)


def test_convolutions_are_tried_where_a_run_is_long_enough():
    """The paper's training is; a thousand iterations on small crops are over before it would pay."""
    network, config = SwiftNet(3, "resnet18", width=0.125), recipe("camvid")
    assert not warm.should_autotune(network, config, 2000)
    assert warm.should_autotune(network, config.changed(jitter={"crop": (448, 448)}), 74_200)
    assert not warm.should_autotune(nn.Conv2d(4, 4, 3, groups=4), config)


def test_a_gpu_that_fails_to_wake_up_ends_no_run(monkeypatch):
    """In a thread of its own, which says nothing; without a GPU, nothing is begun."""
    asked = []
    monkeypatch.setattr(torch, "zeros", lambda *shape, device: asked.append(device) or 1 / 0)
    started = SimpleNamespace(close=lambda: asked.append("closed"))
    monkeypatch.setattr(warm, "start_compilers", lambda: started)
    monkeypatch.setattr(backend, "AVAILABLE", True)
    before, config = threading.active_count(), recipe("camvid")
    with warm.prewarm_gpu(CPU, config):
        assert threading.active_count() == before
        assert warm._compilers is None
    with warm.prewarm_gpu(torch.device("cuda"), config):
        assert warm._compilers is started
        for thread in threading.enumerate():
            if thread.name == "prewarm":
                thread.join()
    assert asked == [torch.device("cuda"), "closed"]


def test_kernels_are_rehearsed_once_for_a_gpu(monkeypatch, tmp_path):
    """Once they are in Triton's cache, a run of the same kind finds them there, whatever its length; others do not."""
    rehearsed, gpu = [], torch.device("cuda")
    monkeypatch.setattr(warm, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(warm, "compile_ahead", lambda rehearse, compilers: rehearsed.append(compilers))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    config = recipe("camvid")
    longer, other = config.changed(train={"iterations": 7}), config.changed(method="supervised")
    warm.compile_kernels(None, None, config, gpu)  # with no folder to leave a mark in
    (tmp_path / "cache").mkdir()
    expected = 1
    for changed, kind, new in (
        (config, "", 1), (longer, "", 0), (other, "", 1), (config, "supervised", 1), (config, "", 0), (other, "", 0)
    ):  # fmt: skip
        warm.compile_kernels(None, None, changed, gpu, kind)
        expected += new
        assert len(rehearsed) == expected
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    warm.compile_kernels(None, None, config, gpu)
    assert len(rehearsed) == expected + 1


def test_without_triton_nothing_is_done(monkeypatch):
    """Nor with one that compiles only what it launches."""
    monkeypatch.setattr(ahead, "AsyncCompileMode", None)
    ahead.compile_ahead(lambda: pytest.fail("runs"))


def test_threads_compile_one_after_the_other(monkeypatch):
    """Whichever ends first, the other one launches nothing, and in the end kernels are launched as ever."""

    class Kernel:
        def run(self, warmup=False):
            launches.append(warmup)

    launches, usual = [], Kernel.run
    monkeypatch.setattr(ahead, "JITFunction", Kernel)
    monkeypatch.setattr(ahead, "AsyncCompileMode", lambda *_, **__: nullcontext())
    both_inside, one_left = threading.Barrier(2), threading.Event()

    def rehearse(waits):
        with suppress(threading.BrokenBarrierError):  # the other one has to wait outside
            both_inside.wait(0.5)
        if waits and not both_inside.broken:
            one_left.wait(5)
        Kernel().run()

    def compile_beside(waits):
        ahead.compile_ahead(lambda: rehearse(waits))
        one_left.set()

    threads = [threading.Thread(target=compile_beside, args=(waits,)) for waits in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert launches == [True, True]
    assert Kernel.run is usual


class NoDevice:
    """What Triton asks of a GPU before it compiles; nothing can be launched on this one."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


@pytest.mark.slow
@pytest.mark.skipif(ahead.AsyncCompileMode is None, reason="no Triton that compiles ahead")
def test_kernels_are_compiled_and_not_launched(monkeypatch, tmp_path):
    """For a GPU that is not here, by Triton's own compiler; launching anything on it would fail."""
    from triton.runtime import driver

    kernel, usual = rows._norm_sum_parts, ahead.JITFunction.run
    if not isinstance(kernel, ahead.JITFunction):
        pytest.skip("kernels are interpreted here")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", NoDevice())
    monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
    made = []
    ahead.compile_ahead(lambda: made.extend(rows.summed(torch.ones(2, 3, 8), None) for _ in range(2)))
    (compiled,) = kernel.device_caches[0][0].values()
    assert compiled.asm["cubin"]
    assert len(made) == 2
    assert ahead.JITFunction.run is usual


@pytest.mark.slow
@pytest.mark.skipif(ahead.AsyncCompileMode is None, reason="no Triton that compiles ahead")
def test_other_processes_compile_what_is_found_in_the_cache(monkeypatch, tmp_path):
    """Before Triton's own function is called; one that cannot, or is no more, is not waited for."""
    from triton.runtime import driver

    kernel = rows._norm_sum_parts
    if not isinstance(kernel, ahead.JITFunction):
        pytest.skip("kernels are interpreted here")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver, "_active", NoDevice())
    monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
    helpers, seen = compilers.Compilers(), []
    usual = helpers.compile
    found = lambda: [file.name for file in tmp_path.rglob("*.cubin")]  # noqa: E731
    monkeypatch.setattr(helpers, "compile", lambda function: (usual(function), seen.append(found())))
    ahead.compile_ahead(lambda: rows.summed(torch.ones(2, 3, 8), None), helpers)
    assert seen == [["_norm_sum_parts.cubin"]] == [found()]
    usual(lambda: 1)
    helpers.close()
    began = time.monotonic()
    usual(lambda: seen)
    assert time.monotonic() - began < 1
    assert helpers.process.poll() is not None


def test_a_resnet_of_ours_is_fused_without_timm():
    """Which takes longer to import than PyTorch, and would be waited for at the start of each training on a GPU."""
    code = (
        "import sys; from oneway.models.swiftnet import SwiftNet; from oneway.models.fuse import FusedNorm, fuse; "
        "network = fuse(SwiftNet(3, 'resnet18', width=0.125)); assert 'timm' not in sys.modules; "
        "assert sum(isinstance(module, FusedNorm) for module in network.modules()) == 33"
    )
    run_code(code)


def test_optimisers_learn_without_the_compiler():
    """PyTorch's own import it, to say that they are not to be compiled; what they compute stays the same."""
    code = (
        "import sys, torch; from oneway.config import Optimiser; from oneway.engine.optim import optimiser_for\n"
        "for name in ('sgd', 'adam', 'adamw'):\n"
        "    network = torch.nn.Linear(2, 2); network(torch.ones(1, 2)).sum().backward()\n"
        "    before = network.weight.clone(); optimiser = optimiser_for([network], Optimiser(name=name))\n"
        "    optimiser.step(); optimiser.zero_grad(); assert network.weight.grad is None\n"
        "    assert (network.weight != before).all() and network.weight.requires_grad\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    run_code(code)


def test_a_command_imports_timm_without_the_compiler():
    """Which comes when it is asked for: torchvision pools a region by it, and finds what timm has told it to leave."""
    code = (
        "import sys, torch; from oneway.common.importing import claim_process, import_timm\n"
        "claim_process(); timm = import_timm()\n"
        "assert 'torch._dynamo' not in sys.modules and '_dynamo' not in vars(torch)\n"
        "assert import_timm() is timm is sys.modules['timm']\n"
        "from timm.layers import disable_compiler\n"
        "assert disable_compiler(lambda: 1)() == 1 and torch._dynamo.__file__\n"
        "from torchvision.ops import roi_align; box = torch.tensor([[0.0, 0, 0, 4, 4]])\n"
        "assert (roi_align(torch.ones(1, 1, 8, 8), box, 2) == 1).all()"
    )
    run_code(code)


@pytest.mark.parametrize("claimed", [False, True])
def test_other_threads_find_the_whole_compiler(claimed):
    """While a program imports timm, or a thread of a command that is not its main one."""
    code = f"""
import sys, threading, torch
from oneway.common import importing
if {claimed}:
    importing.claim_process()
import_module, found = importing.import_module, []
def use_compiler():
    import torch._dynamo.config
    found.append(torch._dynamo.config)
def import_beside(name):
    other = threading.Thread(target=use_compiler)
    other.start()
    other.join()
    return import_module(name)
importing.import_module = import_beside
if {claimed}:
    thread = threading.Thread(target=importing.import_timm)
    thread.start()
    thread.join()
else:
    importing.import_timm()
assert found == [torch._dynamo.config] and "timm" in sys.modules
"""
    run_code(code)


def test_a_command_claims_its_process():
    """What `oneway` starts, and no program that imports it."""
    code = """
import os
from oneway.cli import command
from oneway.common import importing
assert not importing._own_process
command.main = lambda: os._exit(0 if importing._own_process else 1)
command.run()
"""
    run_code(code)


def test_stand_ins_of_the_compiler_make_room_for_it():
    """Where more is asked of them than they can, as another version may."""
    code = (
        "import sys, torch; from oneway.common.importing import _compiler_on_demand\n"
        "with _compiler_on_demand():\n"
        "    from torch._dynamo.utils import is_compile_supported; assert 'torch._guards' in sys.modules\n"
        "    from torch._dynamo import allow_in_graph; assert allow_in_graph.__module__.startswith('torch._dynamo')\n"
        "assert is_compile_supported('cpu') and torch._dynamo.__file__"
    )
    run_code(code)
