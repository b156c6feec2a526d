"""Run folders, folders of results and of images that a stranger left lying, given to whole verbs.

An audit hook sees every file that is opened, made, renamed or removed, and every process that is started. Nothing that
lies outside is read or changed, nothing is written but where the user said, and nothing is started.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image

from oneway.common.errors import UserError
from reliability import records
from reliability.attacks import Action, link
from reliability.records import Verb, card, command, explore

STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn")
STARTED = ("git", "uname", os.path.basename(sys.executable))
"""What we start ourselves, to tell what a run was trained with, and to decode what may take for ever."""

CHANGES = ("os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
REFUSED = 1
SECRET = "zweiundvierzig"  # what the files outside say, and nothing else does

EVALUATE = command("eval", "RUN", "--json", "--device", "cpu")
ELSEWHERE = command("eval", "RUN", "--data", "DATA", "--device", "cpu")
REPORT = command("report", "RUN")
SUGGEST = command("suggest", "RUN", "--count", "2", "--device", "cpu")
PREDICT = command("predict", "RUN", "DATA/images/0.png", "--out", "predictions", "--device", "cpu")
RESUME = command("train", "folder", "--out", "RUN", "--resume")
CHECK = command("check", "DATA")
VERBS = {"eval": EVALUATE, "report": REPORT, "suggest": SUGGEST, "explore": explore}


@dataclass(frozen=True)
class Attack:
    """What is put into the run folder, or beside it, and the verb that meets it there."""

    name: str
    prepare: Action
    verb: Verb
    stopped: bool = False
    """Whether the run has not ended."""

    status: int = 0
    """How the verb ends: with 1 where what it needs is not to be had."""


def attacks(outside: Path) -> Iterator[Attack]:
    """All of them; the action is given the folder that has `run` and `data` in it, and verbs run there."""
    for name, verb in {**VERBS, "predict": PREDICT, "check": CHECK, "eval --data": ELSEWHERE, "export": card}.items():
        yield Attack(f"nothing: {name}", lambda here: None, verb)
    yield Attack("nothing: train --resume", lambda here: None, RESUME, stopped=True)
    yield from _settings(outside)
    yield from _links_to_read(outside)
    yield from _links_to_write(outside)
    yield from _data(outside)


def _settings(outside: Path) -> Iterator[Attack]:
    """Paths in config.yaml."""
    for name, verb in VERBS.items():
        yield Attack(f"data.cache outside: {name}", setting("data", "cache", outside / "cache"), verb)
        yield Attack(f"model.weights outside: {name}", setting("model", "weights", outside / "secret.pth"), verb)
        taught = _all(setting("method", "", "mt-phtps"), setting("teacher", "", outside / "run"))
        yield Attack(f"teacher outside: {name}", taught, verb)
        yield Attack(f"labels outside: {name}", setting("labels", "", outside / "secret.txt"), verb)
        yield Attack(f"a factory: {name}", setting("model", "factory", "evil:make"), verb)
    yield Attack("data.unlabelled outside, --data", setting("data", "unlabelled", outside), ELSEWHERE)
    yield Attack("data.path outside, --data", setting("data", "path", outside), ELSEWHERE)
    if os.geteuid() == 0:  # only then can a folder be given to somebody
        for name, verb in {"eval": EVALUATE, "report": REPORT, "suggest": SUGGEST}.items():
            whose = _somebody_elses(setting("data", "path", outside))
            yield Attack(f"data.path outside, of another user: {name}", whose, verb, status=REFUSED)
        yield Attack("data.path outside, of another user: explore", whose, explore)


def _links_to_read(outside: Path) -> Iterator[Attack]:
    read_by: dict[str, tuple[str, ...]] = {
        "config.yaml": ("eval", "report", "suggest", "explore"),
        "model.safetensors": ("eval", "report", "suggest", "explore"),
        "split.json": ("eval", "report", "suggest"),
        "summary.json": ("report", "explore"),
        "metrics.jsonl": ("report",),
        "environment.json": ("report",),
    }
    for name, verbs in read_by.items():
        target = outside / "run" / name
        for verb in verbs:
            # A page that shows scenes of ours in place of the run's images needs no split.
            yield Attack(f"{name} is a link: {verb}", link(f"run/{name}", target), VERBS[verb], status=REFUSED)
    model = link("run/model.safetensors", outside / "run" / "model.safetensors")
    yield Attack("model.safetensors is a link: predict", model, PREDICT, status=REFUSED)
    yield Attack("model.safetensors is a link: --model.weights", model, _weights, status=REFUSED)
    yield Attack("model.safetensors is a link: --teacher", model, _teacher, status=REFUSED)
    yield Attack("model.safetensors is a link: export", model, card, status=REFUSED)
    yield Attack("environment.json is a link: export", link("run/environment.json", outside / "secret.json"), card)
    yield Attack("suggest.csv is a link: report", link("run/suggest.csv", outside / "secret.csv"), REPORT)
    for name in ("config.yaml", "metrics.jsonl", "split.json", "changes.json", "environment.json"):
        attack = link(f"run/{name}", outside / "run" / name)
        yield Attack(f"{name} is a link: train --resume", attack, RESUME, stopped=True, status=REFUSED)
    for name in ("checkpoint", "checkpoint/00000012.json", "checkpoint/00000012.safetensors"):
        attack = link(f"run/{name}", outside / "run" / name)
        yield Attack(f"{name} is a link: train --resume", attack, RESUME, stopped=True, status=REFUSED)


def _links_to_write(outside: Path) -> Iterator[Attack]:
    secret = outside / "secret.txt"
    yield Attack("report.html is a link: report", link("run/report.html", secret), REPORT)
    yield Attack("suggest.csv is a link: suggest", link("run/suggest.csv", secret), SUGGEST)
    yield Attack("suggest.png is a link: suggest", link("run/suggest.png", secret), SUGGEST)
    yield Attack("check-data.png is a link: check", link("check-data.png", secret), CHECK)
    for name in ("masks", "overlays"):
        earlier = _results(link(f"predictions/{name}", outside))
        yield Attack(f"predictions/{name} is a link: predict", earlier, PREDICT, status=REFUSED)
    for name, status in (("masks/0.png", 0), ("overlays/0.jpg", 0), ("predictions.json", REFUSED)):
        earlier = _results(link(f"predictions/{name}", secret))
        yield Attack(f"predictions/{name} is a link: predict", earlier, PREDICT, status=status)


def _data(outside: Path) -> Iterator[Attack]:
    """Links in a folder of images."""
    for name in ("images/7.json", "images/7.txt", "images/7.xml", "annotations.json", "classes.txt", "labelmap.txt"):
        prepare = _all(_bare_image, link(f"data/{name}", outside / f"secret{Path(name).suffix}"))
        status = 0 if name == "annotations.json" else REFUSED  # beside masks, nobody looks for annotations
        yield Attack(f"data/{name} is a link: check", prepare, CHECK, status=status)
    yield Attack("data/images/7.json is a pipe: check", _all(_bare_image, _pipe("data/images/7.json")), CHECK)


def setting(section: str, key: str, value: object) -> Action:
    """Another value in the run's config.yaml."""

    def prepare(here: Path) -> None:
        path = here / "run" / "config.yaml"
        tree = yaml.safe_load(path.read_text())
        if key:
            tree[section][key] = None if value is None else str(value)
        else:
            tree[section] = str(value)
        path.write_text(yaml.safe_dump(tree))

    return prepare


def _somebody_elses(change: Action) -> Action:
    return _all(change, lambda here: os.chown(here / "run" / "config.yaml", 4321, 4321))


def _results(change: Action) -> Action:
    """A folder of earlier results, in order but for this."""

    def prepare(here: Path) -> None:
        for name in ("masks", "overlays"):
            (here / "predictions" / name).mkdir(parents=True)
        (here / "predictions" / "predictions.json").write_text('{"oneway": "0.1.0"}')
        change(here)

    return prepare


def _bare_image(here: Path) -> None:
    Image.new("RGB", (64, 32)).save(here / "data" / "images" / "7.png")


def _pipe(name: str) -> Action:
    return lambda here: os.mkfifo(here / name)


def _all(*actions: Action) -> Action:
    def prepare(here: Path) -> None:
        for action in actions:
            action(here)

    return prepare


def _weights(folder: Path) -> str | None:
    from oneway.runs.weights import read

    read(str(folder))
    return None


def _teacher(folder: Path) -> str | None:
    from oneway.config.recipes import recipe
    from oneway.tools.networks import load_teacher

    load_teacher(recipe("folder").changed(teacher=folder))
    return None


@dataclass
class Watch:
    """What a process does, seen by an audit hook."""

    outside: Path
    allowed: tuple[Path, ...]
    """Where it may write."""

    on: bool = False
    seen: list[str] = field(default_factory=list)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Notes what should not be."""
        if not self.on:
            return
        if event in STARTS:
            words = arguments[1] if event == "subprocess.Popen" else ()
            if os.path.basename(str(next(iter(words), ""))) not in STARTED:
                self.seen.append(f"{event} {arguments[0]!r:.80}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self.check(arguments[0], "opened", isinstance(arguments[2], int) and bool(arguments[2] & WRITING))
        elif event in ("os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes | os.PathLike):
            self.check(arguments[0], "listed", False)
        elif event in ("os.rename", *CHANGES) and isinstance(arguments[0], str | bytes | os.PathLike):
            for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]:
                # The name itself changes, and not what a link of that name leads to.
                self.check(Path(os.path.realpath(os.path.dirname(os.fsdecode(path)))) / "x", event, True)

    def check(self, name: str | bytes | os.PathLike[str], how: str, writes: bool) -> None:
        """Notes a path outside, and one that is written to where nothing should be."""
        path = Path(os.path.realpath(os.fsdecode(name)))
        if path.is_relative_to(self.outside):
            self.seen.append(f"{how} {path}")
        elif writes and not path.is_relative_to("/dev") and not any(map(path.is_relative_to, self.allowed)):
            self.seen.append(f"{how} {path} for writing")


def strangers(folder: str, ended: str, stopped: str, data: str, every: int = 1) -> dict[str, Any]:
    """Tries the attacks, or every so many of them; returns how many there were, and what went wrong."""
    torch.set_num_threads(1)
    base = Path(folder).resolve()
    outside, cache, temporary = base / "outside", base / "cache", base / "tmp"
    os.environ |= {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    tempfile.tempdir = None  # asked for anew
    for place in (cache, temporary):
        place.mkdir()
    _lay_out(outside, Path(ended), Path(stopped))
    before = _contents(outside)
    import_module("torch._dynamo")  # as PyTorch's optimisers do; it makes a folder of its own in /tmp
    watch = Watch(outside, (cache, temporary))
    sys.addaudithook(watch)
    wrong: list[str] = []
    tried = list(attacks(outside))[::every]
    for number, attack in enumerate(tried):
        here = base / str(number)
        for name, source in {"run": stopped if attack.stopped else ended, "data": data}.items():
            shutil.copytree(source, here / name)
        _all(setting("data", "path", here / "data"), setting("data", "cache", None))(here)
        attack.prepare(here)
        os.chdir(here)
        watch.allowed, watch.on = (cache, temporary, here), True
        problem = _meet(attack, here)
        watch.on = False
        wrong += [f"{attack.name}: {what}" for what in (problem, *watch.seen) if what]
        watch.seen.clear()
        if _contents(outside) != before:
            wrong.append(f"{attack.name}: something outside has changed")
        for page in here.glob("run/*.html"):
            if not page.is_symlink() and SECRET in page.read_text():
                wrong.append(f"{attack.name}: a page has what is outside")
        os.chdir(base)
        shutil.rmtree(here)
    kept = (cache / "oneway").rglob("*")
    others = [path for path in kept if path.stat().st_mode & 0o077 and not _shielded(path, cache)]
    wrong += [f"readable by others: {path}" for path in others]
    return {"tried": len(tried), "wrong": wrong}


def _meet(attack: Attack, here: Path) -> str | None:
    """What is wrong with how a verb went."""
    try:
        problem, status = attack.verb(here / "run"), records.last_status
    except UserError:
        problem, status = None, REFUSED
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return problem or (f"ends with {status}" if status != attack.status else None)


def _lay_out(outside: Path, ended: Path, stopped: Path) -> None:
    shutil.copytree(ended, outside / "run")
    shutil.copytree(stopped / "checkpoint", outside / "run" / "checkpoint", dirs_exist_ok=True)
    (outside / "run" / "changes.json").write_text('{"changes": []}')
    (outside / "secret.csv").write_text(f"rank,image\n1,{SECRET}\n")
    (outside / "secret.json").write_text(f'{{"shapes": [], "hardware": "{SECRET}", "versions": {{}}}}')
    (outside / "secret.txt").write_text(f"images/0.png\n{SECRET}\n")
    (outside / "secret.xml").write_text(f"<annotation>{SECRET}</annotation>")
    torch.save({"weight": torch.zeros(1)}, outside / "secret.pth")
    Image.new("RGB", (64, 32)).save(outside / "secret.png")


def _shielded(path: Path, cache: Path) -> bool:
    """Whether a folder above lets nobody else in."""
    return any(not above.stat().st_mode & 0o077 for above in path.parents if above.is_relative_to(cache / "oneway"))


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}
