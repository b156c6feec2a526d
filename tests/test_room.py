"""What new methods may need has its place: students, views, compositions, weights of pixels, shares of a batch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

import forks
import oneway
from algorithms import batch_of, settings
from kernel_facts import DEVICE, assert_facts
from oneway import models, ops
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import Perturb
from oneway.draws import Draws, Plan, columns_of, draw, draw_perturbation, part
from oneway.engine.jitter import jitter_inputs
from oneway.engine.start import training_state
from oneway.engine.store import Store
from oneway.methods import METHODS, Method, supervised
from oneway.methods.consistency import consistency
from oneway.methods.interface import Loss
from oneway.models.roles import Models
from oneway.perturb import PERTURBATIONS, UNCHANGED, CutMix, Perturbation, perturbation
from oneway.runs import open_run
from oneway.tools.evaluate_run import evaluate_run
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


def test_phtps_then_cutmix_by_hand():
    """Inside its box, an image has the warped and recoloured partner, with the partner's target and validity."""
    x = torch.rand(2, 3, 24, 32, generator=torch.Generator().manual_seed(0))
    drawn = draw_perturbation(0, 0, 2)
    both = perturbation(("phtps", "cutmix"), drawn, x, Perturb(geometric=2.0))
    first = perturbation(("phtps",), drawn, x, Perturb(geometric=2.0))
    inside = ops.cutmix(torch.stack((torch.zeros(1, 24, 32), torch.ones(1, 24, 32))), drawn.boxes)[0, 0].bool()
    assert 0.4 < inside.float().mean() < 0.6
    for whole, parts in (
        (both.image(x), first.image(x)),
        (both.prediction(x), first.prediction(x)),
        (both.valid[:, None], first.valid[:, None]),
    ):
        assert torch.equal(whole[0], torch.where(inside, parts[1], parts[0]))
        assert torch.equal(whole[1], torch.where(inside, parts[0], parts[1]))
    assert not first.valid.all()


@pytest.mark.parametrize("names", [("cutmix", "phtps"), ("tps", "cutmix", "tps"), ("ph", "cutmix"), ()])
def test_any_order_composes(names):
    """Where predictions are the pixels themselves, both branches agree on every valid pixel, whatever the order."""
    x = torch.rand(4, 3, 16, 20, generator=torch.Generator().manual_seed(0))
    changes = perturbation(names, draw_perturbation(0, 0, 4), x, Perturb(photometric=0.0))
    valid = changes.valid if changes.valid is not None else torch.ones(4, 16, 20, dtype=torch.bool)
    difference = (changes.image(x) - changes.prediction(x)).abs().amax(dim=1)
    assert difference[valid].max() < 1e-6
    assert valid.float().mean() > 0.5


def test_facts_about_weights_hold():
    """Of pixels, in the kernels."""
    assert_facts(__file__, "weight")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_weights_of_pixels_scale_their_losses(dtype):
    """Cross-entropy and KL: the mean counts the same pixels, each loss times its weight; by PyTorch's own losses."""
    _check_weights(torch.device("cpu"), dtype)


def fact_weights_of_pixels_scale_their_losses():
    """The same by the kernels, with gradients."""
    _check_weights(DEVICE, torch.float32)


def _check_weights(device: torch.device, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, target = (torch.randn(2, 4, 5, 6, generator=generator).to(device, dtype) for _ in range(2))
    weight = torch.rand(2, 20, 24, generator=generator).to(device, dtype)
    labels = torch.randint(4, (2, 20, 24), generator=generator).to(device)
    labels[0, :3] = IGNORE
    exact = logits.double().requires_grad_()
    large = F.interpolate(exact, (20, 24), mode="bilinear")
    losses = F.cross_entropy(large, labels, ignore_index=IGNORE, reduction="none")
    p = F.interpolate(target.double(), (20, 24), mode="bilinear").softmax(dim=1)
    divergence = F.kl_div(large.log_softmax(dim=1), p, reduction="none").sum(dim=1)
    for ours, expected in (
        (lambda x: ops.cross_entropy(x, labels, weight), (weight.double() * losses).sum() / (labels != IGNORE).sum()),
        (lambda x: ops.moved_kl(target, x, UNCHANGED, (20, 24), True), (p.amax(dim=1) * divergence).mean()),
    ):
        x = logits.clone().requires_grad_()
        value = ours(x)
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-7)
        (gradient,) = torch.autograd.grad(value, x)
        (wanted,) = torch.autograd.grad(expected, exact, retain_graph=True)
        torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-7)


PLAN = Plan(0, tuple(range(6)), tuple(range(16)), 4, 8, (0.7, 1.4), True, views=2, augmented=2)


@pytest.mark.parametrize("of", [1, 2])
def test_shares_of_a_table_are_the_whole_table(of):
    """Every row of every column goes to one process, and pairs stay together."""
    whole = draw(PLAN, 3)
    shares = [part(whole, rank, of) for rank in range(of)]
    items = [item for share in shares for item in share.unlabelled.item.tolist()]
    assert sorted(items) == sorted(whole.unlabelled.item.tolist())
    assert sum(len(share.views[1].boxes.height) for share in shares) == len(whole.views[1].boxes.height)
    assert torch.equal(
        torch.cat([share.augmentation.displacements for share in shares]), whole.augmentation.displacements
    )
    half = len(whole.unlabelled.item) // 2
    partner = dict(zip(whole.unlabelled.item[:half].tolist(), whole.unlabelled.item[half:].tolist(), strict=True))
    for share in shares:
        first, second = share.unlabelled.item.tolist()[: half // of], share.unlabelled.item.tolist()[half // of :]
        assert [partner[item] for item in first] == second


def test_perturbations_stay_with_their_labelled_images():
    """Where all of them are perturbed, each process gets those of its own images."""
    whole = draw(replace(PLAN, augmented=4), 3)
    of_item = dict(zip(whole.labelled.item.tolist(), whole.augmentation.displacements, strict=True))
    for share in (part(whole, rank, 2) for rank in range(2)):
        for item, displacements in zip(share.labelled.item.tolist(), share.augmentation.displacements, strict=True):
            assert torch.equal(displacements, of_item[item])


def test_a_batch_that_does_not_divide_is_refused():
    """With its size."""
    with pytest.raises(ValueError, match="4 images do not divide into shares for 3 processes"):
        part(draw(PLAN, 0), 0, 3)


def test_losses_of_shares_are_the_loss_of_the_whole():
    """A share's consistency loss counts its own pixels; weighted by them, the shares' mean is the whole batch's."""
    from oneway import data

    config = small_streets(method="mt-cutmix")
    dataset = data.load(config.data)
    store = Store.hold(dataset.read("train"), torch.device("cpu"))
    network = models.build(config.model, len(dataset.classes), seed=0).eval()

    def loss(draws: Draws) -> tuple[float, int]:
        x = jitter_inputs(store, draws.unlabelled, config.jitter)
        changes = perturbation(("phtps", "cutmix"), draws.views[0], x, config.perturb)
        batch = batch_of(x, x, x, [changes])
        frozen = Models((network,), (network,), models.NormPolicy("frozen"))
        return float(consistency(frozen, batch, settings()).detach()), int(changes.valid.sum())

    whole = draw(PLAN, 3)
    parts = [loss(part(whole, rank, 2)) for rank in range(2)]
    value, count = loss(whole)
    assert sum(pixels for _, pixels in parts) == count
    assert sum(mean * pixels for mean, pixels in parts) / count == pytest.approx(value, rel=1e-4)


def test_a_table_of_draws_may_have_any_number_of_views():
    """They are columns like all others."""
    found = columns_of(draw(Plan(**{**PLAN.__dict__, "views": 5}), 0))
    assert sum(len(column.shape) == 3 and column.shape[1:] == (4, 2) for column in found) == 6
