"""Methods and perturbations of a user's own: what they may need has its place, and what is wrong is refused by name."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from safetensors import safe_open
from torch import nn

import forks
import oneway
from kernel_facts import DEVICE, assert_facts
from oneway import models, ops
from oneway.common.errors import UserError
from oneway.config import Perturb
from oneway.draws import draw_perturbation
from oneway.engine.start import training_state
from oneway.methods import METHODS, Method, supervised
from oneway.methods.interface import Loss
from oneway.models.features import classified_features, classifier_of, encoded_features
from oneway.perturb import PERTURBATIONS, CutMix, Perturbation, perturbation
from oneway.runs import open_run
from oneway.tools.evaluate_run import evaluate_run
from oneway.tools.train import train
from own_method import codes, remembering
from small_runs import QUIET, assert_resumes, small_streets


@pytest.fixture
def methods(monkeypatch):
    """The table, to which a test adds rows of its own."""
    monkeypatch.setattr("oneway.methods.table.METHODS", METHODS)
    before = dict(METHODS)
    yield METHODS
    METHODS.clear()
    METHODS.update(before)


def cross_teaching(models, batch, settings):
    """Two students, each learning from the other's hard labels."""
    yield from supervised.losses(models, batch, settings)
    x = batch.unlabelled()
    for which in range(2):
        labels = ops.upsample(models.teacher(x, which=1 - which), ops.pixels_of(x)).argmax(dim=1)
        logits = models.student(x, clean=False, which=which)
        yield Loss("cross", ops.cross_entropy(logits, labels), settings.alpha)


def test_two_students_teach_one_another(methods, tmp_path):
    """Both learn, from different beginnings; what they yield is logged; a resumed run is the same to the bit."""
    methods["cross"] = Method(cross_teaching, students=2, teacher="mean")
    config = small_streets(method="cross", train={"log_every": 1, "checkpoint_every": 2})
    whole = oneway.fit(config, tmp_path / "whole", quiet=True)
    assert {"supervised", "cross"} <= whole.metrics()[0].keys()

    content = _last_checkpoint(whole.path)
    for role in ("student", "student2", "teacher", "teacher2"):
        assert any(name.startswith(f"{role}.") for name in content)
    head = "head.2.weight"
    assert not torch.isclose(content[f"student.{head}"], content[f"student2.{head}"]).any()
    assert not torch.equal(content[f"student2.{head}"], content[f"teacher2.{head}"])

    halved = tmp_path / "halved"
    oneway.fit(config, halved, quiet=True)
    for path in (*halved.glob("checkpoint/00000004*"), halved / "summary.json", halved / "model.safetensors"):
        path.unlink()
    oneway.fit(config, halved, resume=True, quiet=True)
    again = _last_checkpoint(halved)
    assert again.keys() == content.keys()
    assert all(torch.equal(again[name], content[name]) for name in content)


def _last_checkpoint(run: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(sorted(run.glob("checkpoint/*.safetensors"))[-1])


def test_the_page_writes_a_method_that_trains(tmp_path):
    """As printed, in new processes, but for less confidence and smaller images; what reads runs knows it."""
    code, *_ = codes()
    assert 30 <= len(code.splitlines()) <= 50
    (tmp_path / "two_views.py").write_text(code)
    small = "--labels 4 --data.size 32 64 --data.images 16 --jitter.crop 32 64 --model.width 0.125 --train.iterations 4"
    few = "--train.batch-labelled 2 --train.batch-unlabelled 2 --train.log-every 1 --train.confidence 0.05"
    said = ""
    for command in (f"train streets --method two-views --out run {small} {few}", "train streets --help"):
        words = [sys.executable, "two_views.py", *command.split()]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said = said or done.stdout
    assert "two-views" in done.stdout
    assert "python two_views.py report run-supervised run" in said
    evaluated = forks.start(tmp_path, script="two_views.py", command=["eval", "run"])
    assert evaluated.wait() == 0, evaluated.error
    logged = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert logged["view 1"] > 0
    assert logged["view 2"] > 0
    assert logged["view 1"] != logged["view 2"]
    assert "View 2 loss" in (tmp_path / "run" / "report.html").read_text()
    assert evaluate_run(tmp_path / "run", "val", None, QUIET)["samples"] > 0  # nothing here knows the method
    with pytest.raises(UserError, match=r"none of oneway's.*two_views\.py train streets --method two-views"):
        open_run(tmp_path / "run")
    resumed = forks.start(tmp_path, command=["train", "run", "--resume"])
    assert resumed.wait() == 1
    assert "Use that program in the place of `oneway`" in resumed.error


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda logits: logits.mean(), r"yields a Tensor; give it a name: Loss\(name, value, weight\)"),
        (lambda logits: (Loss("size", logits.mean()), 0.1), "yields a float; give it a name"),
        (lambda logits: Loss("size", logits), r"loss 'size' has shape \(2, 9, 8, 16\); make it a scalar"),
        (lambda logits: Loss("size", logits.detach().mean()), "loss 'size' has no gradient"),
        (lambda logits: Loss("iteration", logits.mean()), "loss 'iteration' has a name that logs have for something"),
        (lambda logits: Loss("miou", logits.mean()), "loss 'miou' has a name that logs have for something"),
    ],
)
def test_a_loss_that_is_none_is_refused_by_its_name(wrong, message, methods, tmp_path):
    """Before PyTorch would say something about graphs."""

    def losses(models, batch, settings):
        yield wrong(models.student(batch.unlabelled()))

    methods["wrong"] = Method(losses)
    with pytest.raises(UserError, match=message):
        oneway.fit(small_streets(method="wrong"), tmp_path / "run", quiet=True)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (lambda models, batch, _: Loss("size", models.student(batch.unlabelled()).mean()), "returns a Loss; let it"),
        (lambda *_: iter(()), "yields no loss"),
    ],
)
def test_a_method_that_gives_no_losses_is_refused(losses, message, methods, tmp_path):
    """It would have run to the end without learning anything."""
    methods["wrong"] = Method(losses)
    with pytest.raises(UserError, match=message):
        oneway.fit(small_streets(method="wrong"), tmp_path / "run", quiet=True)


def test_a_number_beside_a_loss_is_logged_and_teaches_nothing(methods, tmp_path):
    """As the page says, with weight 0: the weights that are learnt are those without it."""

    def losses(models, batch, settings, watched):
        logits = models.student(batch.unlabelled())
        loss, number = Loss("size", logits.square().mean()), Loss("share", (logits > 0).float().mean(), 0)
        yield (loss, number) if watched else loss

    learnt = []
    for watched in (False, True):
        methods["own"] = Method(partial(losses, watched=watched))
        config = small_streets(method="own", train={"log_every": 1})
        run = oneway.fit(config, tmp_path / str(watched), quiet=True)
        assert ("share" in run.metrics()[0]) == watched
        learnt.append((run.path / "model.safetensors").read_bytes())
    assert 0 < run.metrics()[0]["share"] < 1
    assert learnt[0] == learnt[1]


def test_a_schedule_follows_the_progress_of_the_run(methods, tmp_path):
    """Whatever its length, and after it was resumed."""

    def losses(models, batch, settings):
        value = models.student(batch.unlabelled()).square().mean()
        yield Loss("size", value, settings.progress), Loss("done", settings.progress, 0)

    methods["ramped"] = Method(losses)
    for iterations in (4, 8):
        config = small_streets(method="ramped", train={"iterations": iterations, "log_every": 1, "checkpoint_every": 2})
        run = oneway.fit(config, tmp_path / str(iterations), quiet=True)
        done = [line["done"] for line in run.metrics() if "done" in line]
        assert done == [iteration / iterations for iteration in range(iterations)]
    assert_resumes(config.changed(train={"iterations": 4}), tmp_path / "resumed")


def test_misspelt_choices_of_a_method_are_refused(methods, tmp_path, monkeypatch):
    """A teacher that is none trained as a simple one; perturbations are known when training begins, before images."""
    with pytest.raises(UserError, match=r"Unknown teacher of a method 'ema'.* Known: simple, mean\."):
        Method(cross_teaching, teacher="ema")
    with pytest.raises(UserError, match=r"Unknown loss of a method 'weighted'. Did you mean 'weighted-kl'\?"):
        Method(cross_teaching, loss="weighted")
    methods["wrong"] = Method(cross_teaching, perturb=("phtsp",), students=2)
    monkeypatch.setattr("oneway.tools.opening._read_images", None)
    with pytest.raises(UserError, match=r"perturbation of the method wrong 'phtsp'\. Did you mean 'phtps'\?"):
        oneway.fit(small_streets(method="wrong"), tmp_path / "run", quiet=True)


def test_what_a_method_of_the_page_remembers_is_resumed(methods, tmp_path):
    """A threshold that follows the teacher's certainty; also that of a run which was stopped."""
    methods["two-views"] = remembering()
    config = small_streets(method="two-views", train={"log_every": 1, "checkpoint_every": 2})
    content = assert_resumes(config, tmp_path)
    certainty = float(content["training-head.value"])
    assert 1 / 9 < certainty < 1 / 9 + 0.02, "eight steps of a thousandth"
    assert not any("value" in name for name in safe_open(tmp_path / "model.safetensors", "pt").keys())  # noqa: SIM118


def test_what_a_method_draws_by_itself_is_resumed(methods, tmp_path):
    """From PyTorch's generator, as dropout in a module of its own does."""

    def losses(models, batch, settings):
        x = batch.unlabelled()
        yield from supervised.losses(models, batch, settings)
        yield Loss("noisy", models.student(x + torch.rand_like(x)).square().mean())

    methods["noisy"] = Method(losses)
    assert_resumes(small_streets(method="noisy", train={"checkpoint_every": 2}), tmp_path)


def test_a_method_may_look_into_the_teacher(methods, tmp_path):
    """What its classifier receives, and the maps of its encoder; they learn nothing."""
    seen = []

    def losses(models, batch, settings):
        yield from supervised.losses(models, batch, settings)
        with classified_features(models.teachers[0]) as found, encoded_features(models.teachers[0]) as maps:
            logits = models.teacher(batch.unlabelled())
        (features,), ((*_, coarsest),) = found, maps
        seen.append(torch.equal(classifier_of(models.teachers[0])(features), logits) and not features.requires_grad)
        yield Loss("pull", (models.student(batch.unlabelled()).mean() - coarsest.mean()).square())

    methods["looking"] = Method(losses, teacher="mean")
    oneway.fit(small_streets(method="looking"), tmp_path / "run", quiet=True)
    assert seen == [True] * 4


def test_memory_that_is_replaced_is_refused(methods, tmp_path):
    """On a CPU it would do no harm; a step captured on a GPU would never see it change."""

    def losses(models, batch, settings):
        (threshold,) = models.heads
        yield from supervised.losses(models, batch, settings)
        threshold.value = threshold.value * 0.9

    class Threshold(nn.Module):
        def __init__(self, student, classes):
            super().__init__()
            self.register_buffer("value", torch.ones(()))

    methods["replacing"] = Method(losses, head=Threshold)
    with pytest.raises(UserError, match=r"replaces what it remembers by new tensors: value\. Change it in place"):
        oneway.fit(small_streets(method="replacing"), tmp_path / "run", quiet=True)


def test_a_module_of_a_methods_own_learns_from_weights_of_the_seed(methods):
    """Beside the projector that the method may ask for; it is made for the student and the number of its classes."""
    methods["own"] = Method("cac", head=lambda student, classes: nn.Linear(classes, 2), needs_pairs=True)
    weights = []
    for seed in (0, 0, 1):
        config = small_streets(method="own", seed=seed)
        state = training_state([models.build(config.model, 9, 0)], (), config, torch.device("cpu"), classes=9)
        projector, own = state.models.heads
        assert isinstance(projector, nn.Sequential)
        assert own.weight.shape == (2, 9)
        assert any(own.weight is parameter for group in state.optimiser.param_groups for parameter in group["params"])
        weights.append(own.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_perturbation_of_the_page_composes_with_others(methods, monkeypatch):
    """By its name, in an order."""
    monkeypatch.setitem(PERTURBATIONS, "flip", None)
    tables = {"PERTURBATIONS": PERTURBATIONS, "METHODS": methods}
    exec(codes()[1], tables | {"Perturbation": Perturbation, "Method": Method, "two_views": cross_teaching})
    x = torch.rand(2, 3, 16, 20, generator=torch.Generator().manual_seed(0))
    drawn, names = draw_perturbation(0, 0, 2), methods["two-views"].perturb
    changes = perturbation(names, drawn, x, Perturb())
    expected = perturbation(names[1:], drawn, x.flip(-1), Perturb())
    assert names[0] == "flip"
    assert torch.equal(changes.image(x), expected.image(x.flip(-1)))
    assert torch.equal(changes.prediction(x), expected.prediction(x.flip(-1)))


def test_facts_about_own_perturbations_hold():
    """Those that kernels know nothing of."""
    assert_facts(__file__, "own_movements")


def fact_own_movements_of_predictions_are_those_of_kernels_too():
    """Of classes that say nothing of kernels: one, alone and with a rectangle; and one that has invalid pixels."""

    class Flip(Perturbation):
        def prediction(self, p):
            return p.flip(-1)

    class Half(Perturbation):
        @property
        def valid(self):
            return torch.arange(24, device=DEVICE).expand(2, 20, 24) < 12

    flip, half = Flip(), Half()
    generator = torch.Generator().manual_seed(0)
    target, logits = (torch.randn(2, 4, 5, 6, generator=generator).to(DEVICE) for _ in range(2))
    p = F.interpolate(target, (20, 24), mode="bilinear").softmax(dim=1)
    large = F.interpolate(logits, (20, 24), mode="bilinear").log_softmax(dim=1)

    def divergence(moved: torch.Tensor) -> torch.Tensor:
        return F.kl_div(large, moved, reduction="none").sum(dim=1)

    rectangle = CutMix(draw_perturbation(0, 0, 2).boxes)
    for changes, expected in (
        (flip, divergence(p.flip(-1)).mean()),
        (flip.then(rectangle), divergence(rectangle.prediction(p.flip(-1))).mean()),
        (half, divergence(p)[..., :12].mean()),
    ):
        torch.testing.assert_close(ops.moved_kl(target, logits, changes, (20, 24)), expected, rtol=1e-4, atol=1e-6)


WRITTEN = """
from oneway.methods import METHODS, Method, supervised
def losses(models, batch, settings):
    yield from supervised.losses(models, batch, settings)
METHODS["written"] = Method(losses)
"""


def test_a_changed_file_of_a_method_is_said(methods, tmp_path):
    """Of a run that has ended, and of one that goes on; the folder has the digest of the file."""
    file = tmp_path / "written.py"
    config_of = partial(small_streets, method="written", train={"checkpoint_every": 2})

    def trained(code: str) -> str:
        file.write_text(code)
        exec(compile(code, str(file), "exec"), {"__name__": "written"})
        told = Console(file=io.StringIO(), width=1000)
        train(config_of(), tmp_path / "run", (tmp_path / "run").exists(), told)
        return told.file.getvalue()

    trained(WRITTEN)
    noted = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert noted["code"] == {"written.py": hashlib.sha256(WRITTEN.encode()).hexdigest()[:12]}
    assert "Note" not in trained(WRITTEN)
    assert "written.py was another when this run ended" in trained(WRITTEN + "# otherwise")
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / "checkpoint" / "00000004.json").unlink()
    assert "not as in the iterations before: written.py " in trained(WRITTEN + "# otherwise")
