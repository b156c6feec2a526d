"""`oneway suggest`: images that a model cannot decide on, no two of them alike."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch.distributions import Categorical

from oneway import data
from oneway.common import progress
from oneway.common.errors import UserError
from oneway.config import Config, Data, Model, Perturb
from oneway.data.dataset import Bytes
from oneway.data.streets import render
from oneway.draws import draw_perturbation
from oneway.ops.losses import masked_kl, pixels_of, upsample
from oneway.perturb import phtps, tps
from oneway.runs import load_model, open_run
from oneway.tools.suggest import suggest
from oneway.tools.suggest.candidates import Candidate
from oneway.tools.suggest.choose import choose, choose_among
from oneway.tools.suggest.command import brightness
from oneway.tools.suggest.judge import DRAWS, MOST_PIXELS_CPU, SEED, SHEET_PIXELS, Judge, bring_back, load_judge, weaken
from oneway.tools.suggest.scores import Score, balance_classes, score_images
from oneway.tools.train import train
from processes import forked
from small_runs import QUIET, small_streets, train_two

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_two(tmp_path_factory.mktemp("runs"))[1]


def scene(index: int) -> Bytes:
    return render(1, index, 32, 64)[0]


def pattern(seed: int) -> bytes:
    """A fingerprint unlike any other."""
    return np.random.default_rng(seed).integers(0, 256, 256, dtype=np.uint8).tobytes()


def names(chosen: list[Score]) -> list[str]:
    return [score.name for score in chosen]


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_doubt_is_entropy(run):
    """Its parts are one for each class, and together the mean entropy of the clean prediction."""
    network = load_model(run / "model.safetensors", CPU).network
    x = torch.from_numpy(scene(0)).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        logits = upsample(network(x), pixels_of(x))
    (doubts,) = Judge(network, CPU, Perturb(), 2**19).look([scene(0)])[0]
    assert doubts.shape == (logits.shape[1],)
    assert doubts.sum() == pytest.approx(Categorical(logits=logits.movedim(1, -1)).entropy().mean().item(), rel=1e-4)


def test_doubt_about_a_rare_class_counts_more():
    """Of images with equal doubt, the one whose doubt is about a class that is rare in the others comes first."""
    doubts = np.array([[0.5, 0.02], [0.5, 0.02], [0.52, 0.0], [0.42, 0.1]])
    assert doubts[2].sum() == pytest.approx(doubts[3].sum())
    values = balance_classes(doubts)
    assert values.argmax() == 3
    assert values.argmin() == 2
    assert values.mean() == pytest.approx(1)


def test_classes_count_the_same():
    """However much doubt there is about one of them everywhere: its unit does not matter."""
    doubts = np.random.default_rng(0).random((5, 3))
    assert balance_classes(doubts * [1.0, 1e-3, 1e-6]) == pytest.approx(balance_classes(doubts))


def test_a_class_with_probability_zero_changes_no_rank():
    """One that no label has may have a probability of exactly zero, in every pixel of every image."""
    doubts = np.random.default_rng(0).random((5, 3))
    never = np.hstack([doubts, np.zeros((5, 1))])
    assert balance_classes(never) == pytest.approx(0.75 * balance_classes(doubts))
    assert (balance_classes(np.zeros((5, 3))) == 0).all()


def test_contradiction_is_the_consistency_loss(run):
    """The mean over draws of the loss of training, for the same perturbations of every image."""
    network = load_model(run / "model.safetensors", CPU).network
    x = torch.from_numpy(scene(0)).permute(2, 0, 1)[None].float() / 255
    copies = x.expand(DRAWS, -1, -1, -1)
    perturbation = phtps(draw_perturbation(SEED, 0, DRAWS), copies, Perturb())
    with torch.no_grad():
        target = perturbation.prediction(upsample(network(copies), pixels_of(x)).softmax(dim=1))
        logits = network(perturbation.image(copies))
    losses = [
        masked_kl(target[n : n + 1], logits[n : n + 1], perturbation.valid[n : n + 1]).item() for n in range(DRAWS)
    ]
    found, where, doubt = Judge(network, CPU, Perturb(), 2**19).contradiction(scene(0))
    assert found == pytest.approx(np.mean(losses), rel=1e-4)
    assert where.shape == (32, 64)
    assert where.mean() == pytest.approx(found, rel=0.3)
    with torch.no_grad():
        entropy = Categorical(logits=upsample(network(x), pixels_of(x)).movedim(1, -1)).entropy()[0]
    assert torch.allclose(doubt, entropy / np.log(logits.shape[1]), atol=1e-4)


def test_perturbations_have_half_the_strengths_of_the_run(run):
    """Whatever the run has, and nothing else about its perturbations changes."""
    found = load_judge(open_run(run)).perturb
    assert found == Perturb(photometric=0.5, geometric=0.5)
    assert weaken(Perturb(photometric=0, geometric=3, deviation=0.1)) == Perturb(
        photometric=0, geometric=1.5, deviation=0.1
    )


def test_a_heat_map_lies_on_the_clean_image():
    """What is bright at one place of a warped image is bright where that place came from."""
    x = torch.zeros(1, 1, 48, 96)
    x[..., 20:24, 40:44] = 1
    perturbation = tps(draw_perturbation(3, 0, 1), x, Perturb())
    back = bring_back(perturbation.image(x)[:, 0], perturbation)
    assert back[0, 20:24, 40:44].min() > 0.3
    assert back.sum() == pytest.approx(16, rel=0.2)


def test_what_a_model_is_unsure_of_is_bright_though_it_never_changes_its_mind():
    """And what it contradicts itself about is, though it is sure each time."""
    kl, doubt = torch.tensor([[0.0, 0.0, 4.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    assert brightness(kl, doubt).tolist() == [[0, 254, 254]]


def test_near_duplicates_are_suggested_once():
    """The best comes first; its copy, and the copy of a labelled image, do not come at all."""
    scores = [
        Score("b", 1.0, 0.0, pattern(1)),
        Score("a", 2.0, 0.0, pattern(0)),
        Score("a again", 1.9, 0.0, pattern(0)),
    ]
    scores += [Score("labelled again", 3.0, 0.0, pattern(9)), Score("c", 0.5, 0.0, pattern(2))]
    labelled = [Score("labelled", 0.0, 0.0, pattern(9))]
    chosen, alike = choose(scores, labelled, count=10)
    assert names(chosen) == ["a", "b", "c"]
    assert alike == 2
    assert names(choose(scores, labelled, count=1)[0]) == ["a"]


def test_different_images_come_before_similar_ones():
    """Of two equally difficult images, the one that resembles a suggested one less comes first."""
    first, other = (np.frombuffer(pattern(seed), dtype=np.uint8).astype(float) for seed in (0, 1))
    mixture = (0.5 * first + 0.5 * other).astype(np.uint8).tobytes()
    scores = [
        Score("first", 2.0, 0.0, pattern(0)),
        Score("half like it", 1.0, 0.0, mixture),
        Score("unlike it", 1.0, 0.0, pattern(5)),
    ]
    assert names(choose(scores, [], 3)[0]) == ["first", "unlike it", "half like it"]


def seen_as(name: str, features: list[float], value: float = 1.0) -> Score:
    return Score(name, value, 0.0, pattern(int(name)), np.array(features))


def test_k_centre_takes_the_farthest_first():
    """From those that are labelled, and then from those that are taken too: by hand, on a line."""
    scores = [seen_as(str(place), [float(place)]) for place in (1, 4, 9, 10)]
    chosen, _ = choose(scores, [seen_as("0", [0.0])], 4, "features")
    assert names(chosen) == ["10", "4", "1", "9"]
    assert [score.worth for score in chosen] == [score.distance for score in chosen] == [10, 4, 1, 1]
    assert names(choose(scores, [], 1, "features")[0]) == ["4"]  # the mean is 6


def test_both_weigh_distance_by_doubt():
    """Of images as far from the others, the more doubtful one; and a far one before a doubtful one beside a label."""
    labelled = [seen_as("0", [0.0, 0.0])]
    scores = [seen_as("1", [1.0, 0.0]), seen_as("2", [0.0, 1.0], value=1.5), seen_as("3", [0.1, 0.0], value=5.0)]
    assert names(choose(scores, labelled, 3, "both")[0]) == ["2", "1", "3"]


@pytest.mark.parametrize("by", ["doubt", "both", "features"])
def test_images_are_scored_alike_in_batches(run, by):
    """A GPU takes several of one size at once; the scores are those of each alone."""
    pixels = [scene(0), scene(1), scene(2), np.tile(scene(3), (2, 1, 1)), scene(4)]
    images = [Candidate(f"{index}", lambda index=index: pixels[index]) for index in range(len(pixels))]
    judge = load_judge(open_run(run), device="cpu")
    alone, batched = (score_images(replace(judge, at_once=most), images, QUIET, by)[0] for most in (0, 2 * 32 * 64))
    assert [score.name for score in batched] == ["0", "1", "2", "3", "4"]
    for one, other in zip(alone, batched, strict=True):
        assert (one.value, one.doubt) == pytest.approx((other.value, other.doubt), rel=1e-4)
        assert one.features == pytest.approx(other.features, rel=1e-3, abs=1e-5)
    assert len(alone[0].features) == (120 if by in ("both", "features") else 0)


@pytest.mark.parametrize("by", [None, "doubt", "features"])
def test_a_folder_by_other_means(run, by, tmp_path):
    """Table and sheet all the same; 1 is the average of the scores; a network without an encoder is asked for doubt."""
    for index in range(4):
        Image.fromarray(scene(index)).save(tmp_path / f"{index}.png")
    found = suggest(run, QUIET, folder=tmp_path, count=4, by=by, out=tmp_path / "next.csv")
    rows = table(found.table)
    assert len(rows) == 4
    compared = [row for row in rows if row["worth"]]
    assert rows[-len(compared) :] == compared
    assert len(compared) == (4 if by == "doubt" else 3)  # the first has nothing to be far from
    worth = [float(row["worth"]) for row in compared]
    assert worth == sorted(worth, reverse=True)
    power = {None: (1, 2), "doubt": (1, 1), "features": (0, 1)}[by]
    for row in compared:
        product = float(row["score"]) ** power[0] * float(row["distance"]) ** power[1]
        assert float(row["worth"]) == pytest.approx(product, abs=2e-3)
    assert np.mean([score.value for score in found.chosen]) == pytest.approx(1, abs=0.3)


def test_images_without_doubt_still_get_a_rank():
    """A model without any contradiction has its images spread all the same."""
    scores = [Score(str(seed), 0.0, 0.0, pattern(seed)) for seed in range(4)]
    assert sorted(names(choose(scores, [], 4)[0])) == ["0", "1", "2", "3"]


def test_a_folder_of_images(run, tmp_path):
    """Table and sheet, best first; a duplicate and a broken file are left out, sizes may differ."""
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for index in range(4):
        Image.fromarray(scene(index)).save(folder / f"{index}.png")
    Image.fromarray(scene(0)).save(folder / "more" / "copy.jpg", quality=95)
    Image.fromarray(scene(7)).resize((90, 120)).save(folder / "upright.png")
    (folder / "broken.png").write_bytes(b"no image")
    console = Console(file=io.StringIO(), width=300)
    found = suggest(run, console, folder=folder, count=9, out=tmp_path / "next.csv")
    assert "about as unsure of one image as of the next" in console.file.getvalue()  # after four iterations
    rows = table(found.table)
    assert [int(row["rank"]) for row in rows] == list(range(1, 6))
    assert len({row["image"] for row in rows} & {"0.png", "more/copy.jpg"}) == 1
    assert {row["image"] for row in rows} > {"1.png", "2.png", "3.png", "upright.png"}
    assert all(float(row["kl"]) >= 0 and float(row["doubt"]) > 0 for row in rows)
    assert [float(row["score"]) for row in rows] == pytest.approx([score.value for score in found.chosen], abs=1e-4)
    assert found.alike == 1
    assert len(found.unreadable) == 1
    assert "broken.png" in found.unreadable[0]
    with Image.open(tmp_path / "next.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 1000


def test_masks_are_no_candidates(run, tmp_path):
    """Of a data set's folder, images that have a mask, and the masks themselves, need no label."""
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    for index in range(3):
        Image.fromarray(scene(index)).save(tmp_path / "images" / f"{index}.png")
    Image.new("L", (64, 32)).save(tmp_path / "masks" / "1.png")
    found = suggest(run, QUIET, folder=tmp_path, out=tmp_path / "next.csv")
    assert {Path(score.name).name for score in found.chosen} == {"0.png", "2.png"}


def test_a_run_s_own_images(run):
    """Without a folder, the run's images without labels are ranked; both files lie in its folder."""
    found = suggest(run, QUIET, count=2)
    labelled = set(open_run(run).split.labelled)
    assert len(found.chosen) == 2
    assert not labelled & {score.name for score in found.chosen}
    assert (found.table, found.sheet) == (run / "suggest.csv", run / "suggest.png")
    assert found.table.exists()
    assert found.sheet.exists()


def test_a_run_with_all_labels(tmp_path):
    """It has nothing left of its own, which is said; images of a folder are ranked."""
    run = tmp_path / "run"
    train(small_streets(labels="all"), run, resume=False, console=QUIET)
    with pytest.raises(UserError, match="no image without labels"):
        suggest(run, QUIET)
    folder = tmp_path / "images"
    folder.mkdir()
    for index in range(2):
        Image.fromarray(scene(index)).save(folder / f"{index}.png")
    assert len(suggest(run, QUIET, folder=folder).chosen) == 2


def test_progress_is_shown_where_there_is_no_terminal(run, tmp_path, monkeypatch):
    """A line now and then for each part of the work."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    for index in range(3):
        Image.fromarray(scene(index)).save(tmp_path / f"{index}.png")
    console = Console(file=io.StringIO(), width=200)
    suggest(run, console, folder=tmp_path, count=2, out=tmp_path / "next.csv")
    lines = [line for line in console.file.getvalue().splitlines() if not line.startswith("Note: ")]
    assert [line.split("  ")[:2] for line in lines] == [
        *(["Scoring images", f"{done}/3"] for done in (1, 2, 3)),
        *(["Perturbing those chosen", f"{done}/2"] for done in (1, 2)),
    ]


def test_large_images_are_looked_at_in_small(run):
    """Or seconds would pass for each: the model gets no more pixels than it is told, nor than the sheet shows."""
    judge, seen = load_judge(open_run(run), device="cpu"), []
    judge.network.register_forward_pre_hook(lambda network, x: seen.append(x[0].shape[-2:].numel()))
    pixels = np.tile(scene(0), (40, 20, 1))
    assert pixels.shape == (1280, 1280, 3)
    judge.look([pixels])
    assert 0.9 * MOST_PIXELS_CPU < seen.pop() <= 1.01 * MOST_PIXELS_CPU
    judge.contradiction(pixels)
    assert len(seen) == 2  # the clean image, and all draws of it at once
    assert max(seen) <= 1.01 * SHEET_PIXELS


def test_the_paths_of_a_data_set(tmp_path):
    """Each training image has its file, whatever it is called below the folder; scenes that are rendered have none."""
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for index in range(4):
        Image.fromarray(scene(index)).save(tmp_path / "data/images" / f"{index}.png")
    for index in range(2):
        Image.fromarray(np.full((32, 64), index, dtype=np.uint8)).save(tmp_path / "data/masks" / f"{index}.png")
    known = data.load(Data(name="folder", path=tmp_path / "data", cache=tmp_path / "cache"))
    assert len(known.paths) == 3
    assert all(path.samefile(tmp_path / "data" / name) for name, path in known.paths.items())
    assert not data.load(Data(name="streets")).paths


def test_nothing_to_suggest(run, tmp_path):
    """Said in a sentence."""
    with pytest.raises(UserError, match="missing"):
        suggest(run, QUIET, folder=tmp_path / "missing")


def test_a_run_whose_images_have_moved(run, tmp_path):
    """It is said which folder is missing, and the flag that names another."""
    moved = tmp_path / "moved"
    shutil.copytree(run, moved)
    config = Config(recipe="folder", data=Data(name="folder", path=tmp_path / "gone"), model=Model(width=0.125))
    (moved / "config.yaml").write_text(config.to_yaml())
    with pytest.raises(UserError, match=r"gone: .* --data"):
        suggest(moved, QUIET)


def test_a_table_that_is_no_csv_file_is_refused(run, tmp_path):
    """The contact sheet would take its name; that is said before any image is looked at."""
    with pytest.raises(UserError, match=r"picks\.png: the table is a \.csv file"):
        suggest(run, QUIET, out=tmp_path / "picks.png")
    assert not list(tmp_path.iterdir())


def test_images_that_are_scored_at_a_smaller_size_are_said(trained_run, capsys):
    """Their order may be another then; those that fit are scored as they are, and nothing is said."""
    judge = load_judge(open_run(trained_run), device="cpu")
    assert judge.most >= 1.25e6
    pixels = np.random.default_rng(0).integers(256, size=(3, 48, 64, 3), dtype=np.uint8)
    images = [Candidate(f"{index}", lambda index=index: pixels[index]) for index in range(3)]
    console = Console(width=300)
    score_images(judge, images, console)
    assert "smaller" not in capsys.readouterr().out
    score_images(replace(judge, most=2000), images, console)
    assert "3 of 3 images have more than 0.0 megapixels and are scored at a smaller size" in capsys.readouterr().out


def test_a_network_of_one_s_own_is_asked_for_doubt():
    """By default; features need an encoder of ours, which is said."""
    judge = Judge(torch.nn.Conv2d(3, 4, 1), CPU, Perturb(), 2**19)
    images = [Candidate(f"{index}", lambda index=index: scene(index)) for index in range(4)]
    alike = [choose_among(judge, images[:3], images[3:], 2, by, QUIET).chosen for by in (None, "doubt")]
    assert [score.name for score in alike[0]] == [score.name for score in alike[1]]
    with pytest.raises(UserError, match=r"no `encoder` .* another --by"):
        choose_among(judge, images[:3], images[3:], 2, "both", QUIET)


def test_fewer_than_asked_for_is_said(run, tmp_path):
    """With the reason."""
    for index in range(3):
        Image.fromarray(scene(index)).save(tmp_path / f"{index}.png")
    command = ["suggest", run, "--data", ".", "--out", "next.csv", "--device", "cpu", "--count"]
    said = forked(*command, 100, cwd=tmp_path).stdout
    assert "3 images to label next (no more are without labels): next.csv" in said
    assert "2 images to label next:" in forked(*command, 2, cwd=tmp_path).stdout
