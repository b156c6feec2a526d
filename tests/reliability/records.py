"""Files of a run folder with other values in them, through every verb that reads them.

Each verb does its work, or refuses the file by our own error: never as a bug of ours, never with NaN in what it writes,
and the page of `explore` answers without a server error.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import yaml
from PIL import Image

from oneway.cli import main
from oneway.data.splits import Split
from oneway.runs.checkpoint import seal_manifest
from reliability.mutations import chosen, to_json

ALLOWED = (0, 1, 2)  # the exit status of a verb that works, or says what is wrong
NOT_A_NUMBER = re.compile(r"(?<![\w./-])(nan|inf|infinity)(?![\w./-])", re.IGNORECASE)

Verb = Callable[[Path], str | None]
"""Uses a run folder; returns what is wrong with how it went."""

last_status = 0
"""Of the last verb."""


def command(*words: str) -> Verb:
    """A verb of `oneway`, as it is typed, in this process; RUN is the run folder, DATA a folder of images beside it."""

    def run(folder: Path) -> str | None:
        global last_status
        places = {"RUN": str(folder), "DATA": str(folder.parent / "data")}
        sys.argv = ["oneway", *(re.sub("RUN|DATA", lambda found: places[found[0]], word) for word in words)]
        out, err = StringIO(), StringIO()
        status: Any = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                status = end.code or 0
        last_status = status
        written = [out.getvalue(), *(file.read_text() for file in (folder / "report.html",) if file.exists())]
        if status not in ALLOWED:
            return f"status {status}: {' '.join(err.getvalue().split())[:300]}"
        if not status and (found := NOT_A_NUMBER.search("\n".join(written))):
            return f"writes {found[0]}"
        if status and "damaged" in err.getvalue() and folder.name not in err.getvalue():
            return f"does not name the file: {err.getvalue()}"
        return None

    return run


def explore(folder: Path) -> str | None:
    """The page's requests, without the server around them."""
    from starlette.testclient import TestClient

    from oneway.common.errors import UserError
    from oneway.data import QUIET
    from oneway.tools.explore import prepare
    from oneway.tools.explore.server import application

    global last_status
    try:
        content = prepare([folder], QUIET)
    except UserError:
        last_status = 1
        return None
    last_status = 0
    client = TestClient(application(content), base_url="http://127.0.0.1:8421", raise_server_exceptions=False)
    for address in ("/api/about", "/api/draw/7"):
        answer = client.get(address)
        if answer.status_code >= 500:
            return f"{address} answers {answer.status_code}"
        if answer.status_code == 200:
            json.loads(answer.text, parse_constant=lambda name: 1 / 0)
    return None


def card(folder: Path) -> str | None:
    """The model card of `export`, which alone reads other files than the model."""
    from oneway.tools.export.card import model_card
    from oneway.tools.predict import load

    global last_status
    last_status = 0
    text = model_card("m.onnx", {}, load(folder, device="cpu"), folder, "", {})
    found = NOT_A_NUMBER.search(re.sub("not known: .*", "", text))  # why it is not known may be such a value
    return f"writes {found[0]}" if found else None


REPORT = command("report", "RUN")
EVALUATE = command("eval", "RUN", "--json", "--device", "cpu")
SUGGEST = command("suggest", "RUN", "--count", "2", "--device", "cpu")
PREDICT = command("predict", "RUN", "image.png", "--out", "RUN/predictions", "--json", "--device", "cpu")
TRAIN_ENDED = command("train", "streets", "--out", "RUN", "--resume")
RESUME = command("train", "moons", "--out", "RUN", "--resume")

OF_ENDED: dict[str, tuple[Verb, ...]] = {
    "summary.json": (REPORT, explore, card, TRAIN_ENDED),
    "metrics.jsonl": (REPORT,),
    "environment.json": (REPORT, card),
    "split.json": (REPORT, EVALUATE, card),
    "split.json, its hash made to fit": (REPORT, EVALUATE, SUGGEST, card),
    "config.yaml": (REPORT, EVALUATE, SUGGEST, PREDICT, explore, card),
    "suggest.csv": (REPORT,),
}
OF_STOPPED: dict[str, tuple[Verb, ...]] = {
    "metrics.jsonl": (RESUME,),
    "environment.json": (RESUME,),
    "split.json": (RESUME,),
    "split.json, its hash made to fit": (RESUME,),
    "changes.json": (RESUME,),
    "config.yaml": (RESUME,),
    "checkpoint/00000012.json": (RESUME,),
}


def _read(file: Path) -> Any:
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    if file.suffix == ".csv":
        return [line.split(",") for line in file.read_text().splitlines()]
    return yaml.safe_load(file.read_text()) if file.suffix == ".yaml" else json.loads(file.read_text())


def _write(file: Path, tree: Any, seal: bool) -> None:
    if seal and isinstance(tree, dict):
        parts = [tree.get(part) for part in ("labelled", "unlabelled")]
        if all(isinstance(part, list) for part in parts):
            tree = {**tree, "hash": Split(*parts).hash}
    if file.parent.name == "checkpoint" and isinstance(tree, dict) and tree.pop("seal", None):
        file.write_bytes(seal_manifest(tree))
        return
    match file.suffix:
        case ".jsonl":
            lines = tree if isinstance(tree, list) else [tree]
            text = "".join(f"{to_json(line, indent=None)}\n" for line in lines)
        case ".csv":
            text = "\n".join(",".join(map(str, row)) if isinstance(row, list) else str(row) for row in tree)
        case ".yaml":
            text = yaml.safe_dump(tree, sort_keys=False)
        case _:
            text = to_json(tree)
    file.write_text(text, encoding="utf-8", errors="surrogateescape" if file.suffix == ".jsonl" else "replace")


def records(folder: str, whole: str, stopped: str, count: int, seed: int = 0) -> dict[str, Any]:
    """So many mutations of each file of an ended and of a stopped run; returns how many, and what went wrong."""
    torch.set_num_threads(1)
    _skip_pictures()
    place = Path(folder)
    os.chdir(place)
    Image.new("RGB", (64, 32)).save("image.png")
    rng = random.Random(seed)
    tried, wrong = 0, []
    for source, verbs_of in ((Path(whole), OF_ENDED), (Path(stopped), OF_STOPPED)):
        for title, verbs in verbs_of.items():
            name, _, sealed = title.partition(",")
            for what, tree in chosen(_read(source / name), count, rng, coerced=name.endswith((".yaml", ".csv"))):
                for number, verb in enumerate(verbs):
                    here = place / f"r{tried}"
                    shutil.copytree(source, here)
                    try:
                        _write(here / name, tree, bool(sealed))
                        problem = verb(here)
                    except Exception as error:
                        problem = f"{type(error).__name__}: {str(error)[:200]}"
                    tried += 1
                    if problem:
                        wrong.append(f"{title}, {what}, verb {number}: {problem}")
                    shutil.rmtree(here)
    return {"tried": tried, "wrong": wrong}


def _skip_pictures() -> None:
    """Leaves out what takes seconds, and knows nothing of these files: predictions for a page."""
    from oneway.tools.report import page

    page.gallery = lambda *rest: []  # type: ignore[assignment]
    page.robustness = lambda *rest: None  # type: ignore[assignment]
