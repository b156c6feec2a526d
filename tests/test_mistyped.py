"""A name that is not quite right is answered with the right one, before anything else is looked for."""

from __future__ import annotations

import pytest

from processes import forked
from test_check_cli import write_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with photographs, and another with what looks like two runs."""
    place = tmp_path_factory.mktemp("place")
    write_folder(place / "photos")
    for name in ("cups", "plates"):
        (place / "runs/both" / name).mkdir(parents=True)
        (place / "runs/both" / name / "config.yaml").touch()
    return place


def refusal(place, *words: str, status: int = 1) -> str:
    """What a command says that fails, in one line; no weights are on this computer, nor can they be fetched."""
    hub = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hub"), "COLUMNS": "200"}
    done = forked(*words, cwd=place, **hub)
    assert done.returncode == status, done.stderr
    return " ".join(done.stderr.split())


def test_data_are_looked_for_before_weights(place):
    """With ImageNet's weights, which the recipe starts from, as without."""
    said = refusal(place, "train", "folder", "--data", "photoes")
    assert said == "oneway: photoes: no such file or folder. Did you mean photos?"


@pytest.mark.parametrize("words", ["check photoes", "check ./photos --unlabelled fotos"])
def test_check_finds_that_data_are_not_there(place, words):
    """In its own form, with the same words."""
    done = forked(*words.split(), cwd=place, COLUMNS="200")
    assert (done.returncode, done.stderr) == (1, "")
    assert f"    {words.split()[-1]}: no such file or folder. Did you mean photos?\n" in done.stdout


def test_weights_are_looked_for_once_the_data_are_there(place):
    """They are still asked for before images are decoded."""
    said = refusal(place, "train", "folder", "--data", "photos", "--data.cache", "decoded")
    assert "weights of resnet18 are not on this computer" in said
    assert not list(place.glob("decoded/**/*.bin"))


def test_labels_are_read_before_weights_are_looked_for(place):
    """A file that is not there is named, and nothing else."""
    said = refusal(place, "train", "folder", "--data", "photos", "--labels", "houses.txt")
    assert said.startswith(
        "oneway: --labels houses.txt: neither a number, nor a fraction, nor a file. Give a number, a"
    )


def test_a_folder_with_a_run_is_refused_without_advice(place):
    """On how to train there."""
    words = ["train", "folder", "--data", "photos", "--preset", "cpu", "--out", "runs/both/cups"]
    done = forked(*words, cwd=place)
    assert (done.returncode, done.stdout) == (1, "")
    assert "runs/both/cups: holds a run already. Continue it with --resume" in done.stderr


VERBS = ("eval", "predict", "report", "suggest", "explore", "export --to model.onnx")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_the_same_of_what_is_no_run(place, verb):
    """There is nothing, there are runs inside, or it is something else."""
    further = ["photos/images"] if verb == "predict" else []
    words, *flags = verb.split()
    answers = [refusal(place, words, name, *further, *flags) for name in ("runs/bot", "runs/both", "photos")]
    assert answers == [
        "oneway: runs/bot: no such file or folder. Did you mean runs/both?",
        "oneway: runs/both: not a run folder (it has no config.yaml). It holds runs; name one: "
        "runs/both/cups or runs/both/plates.",
        "oneway: photos: not a run folder (it has no config.yaml). `oneway runs` lists the runs below runs/.",
    ]


def test_a_model_without_its_run_is_not_sent_to_a_folder_that_is_none(tmp_path):
    """Where the run is around it, that is named."""
    (tmp_path / "model.safetensors").touch()
    said = refusal(tmp_path, "report", "model.safetensors")
    assert said == "oneway: model.safetensors: not a run folder (it has no config.yaml)."
    (tmp_path / "config.yaml").touch()
    assert refusal(tmp_path, "report", "model.safetensors") == f"{said} Name its folder: .."


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.onnx", "an ONNX file. Run it with ONNX Runtime"),
        ("model.xml", "a file for OpenVINO. Run it with OpenVINO"),
        ("model.bin", "a file for OpenVINO. Run it with OpenVINO"),
        ("model.pt2", "a file of torch.export. Run it with PyTorch"),
        ("model.engine", "a TensorRT engine. Run it with TensorRT"),
    ],
)
def test_an_exported_model_is_no_run(tmp_path, name, kind):
    """It is known by its name, before it is read."""
    for file in {name, "model.xml"}:
        (tmp_path / file).write_bytes(b"\x08\x09\x12\x07pytorch")
    said = f"oneway: {name}: {kind} (docs/export.md), or give the run folder that it came from."
    commands = (("eval", name), ("suggest", name), ("predict", name, "."))
    assert [refusal(tmp_path, *words) for words in commands] == [said] * 3


def test_a_page_to_watch_names_what_it_may_have_been(place):
    """It also takes a folder of runs."""
    assert "Did you mean runs/both?" in refusal(place, "watch", "runs/bot")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("evla runs/both", "Unknown verb 'evla'. Did you mean 'eval'? `oneway --help` lists all."),
        (
            "xyzzy",
            "Unknown verb 'xyzzy'. The usual ones are quickstart, check, train, eval, report, predict and export; "
            "`oneway --help` lists all.",
        ),
        ("train foldr", "Unknown recipe 'foldr'. Did you mean 'folder'?"),
        (
            "train folder --method supervized",
            "method: unknown value 'supervized'. Did you mean 'supervised'? It",
        ),
        ("train folder --method wrong", "method: unknown value 'wrong'. It should be 'supervised', "),
        ("train folder --crop 64 64", "Unknown flag '--crop'. Did you mean --jitter.crop? `oneway train --help` lists"),
        ("train folder --iteration 5", "Unknown flag '--iteration'. Did you mean --train.iterations?"),
        ("train folder --data.path x", "Unknown flag '--data.path'. Did you mean --data? "),
        ("train folder --batch-size 5", "Unknown flag '--batch-size'. Did you mean --train.batch-labelled, --train."),
        ("train folder --lr 0.1", "Unknown flag '--lr'. Did you mean --optimiser.learning-rate? `oneway train --help`"),
        ("train folder --gpu 0", "Unknown flag '--gpu'. `oneway train --help` lists all."),
        (
            "train",
            "RECIPE is missing; `oneway train --help` says what it is. For images of your own: oneway train folder",
        ),
        ("eval", "RUN is missing; `oneway eval --help` says what it is. `oneway runs` lists the runs"),
        ("reproduce camvd", "Unknown experiment 'camvd'. Did you mean 'camvid'?"),
        ("eval runs/both --window 256", "--window takes 2 values, and has 1. Height and width of sliding windows"),
        ("predict runs/both photos --tile 256", "--tile takes 2 values, and has 1. Height and width"),
    ],
)
def test_a_word_that_is_not_known_is_answered_with_the_nearest(place, words, said):
    """Before the list of all that are, with the status of a command that was not understood."""
    assert refusal(place, *words.split(), status=2).startswith(f"oneway: {said}")
