"""Paths and links that lead out of a folder: in descriptions, lists and annotations, among data, and in run folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from oneway.common.run_files import METRICS
from oneway.config.recipes import recipe
from oneway.data.decode.images import read_image
from oneway.data.folder import list_folder
from oneway.runs import checkpoint
from oneway.runs.continuation import reopen
from reliability.attacks import Action, Attack, file, link, read_a_list, read_run, run_with
from reliability.damage import trained


def attacks(outside: Path) -> Iterator[Attack]:
    """Following any of them opens a file outside."""
    yield from _data(outside)
    yield from _lists(outside)
    yield from _run_folders(outside)


def _data(outside: Path) -> Iterator[Attack]:
    coco = {
        "images": [{"id": 1, "file_name": "../../../outside/secret.png", "height": 8, "width": 8}],
        "annotations": [],
        "categories": [{"id": 1, "name": "a"}],
    }
    for kind, change in {
        "images: ../": _described("train: {images: ../../outside, masks: masks}\nclasses: [a, b]\n"),
        "images: /": _described(f"train: {{images: {outside}, masks: masks}}\nclasses: [a, b]\n"),
        "masks: ../": _described("train: {images: images, masks: ../../outside}\nclasses: [a, b]\n"),
        "unlabelled: ../": _described("classes: [a, b]\nunlabelled: [images/../../../outside]\n"),
        "coco: ../": _described("train: {images: images, coco: ../../outside/secret.json}\n"),
        "file_name: ../ in coco": file("images/a.json", json.dumps(coco).encode()),
        "a link for an image": link("images/1.png", outside / "secret.png"),
        "a link for a mask": link("masks/1.png", outside / "secret.png"),
        "a link for a folder": link("images", outside),
        "a link for a description": link("dataset.yaml", outside / "secret.txt"),
        "a link among the unlabelled": link("unlabelled", outside),
    }.items():
        yield Attack(f"data with {kind}", _data_with(change), _read_everything)


def _described(text: str) -> Action:
    return file("dataset.yaml", text.encode())


def _data_with(change: Action) -> Action:
    """A folder of images and masks, in order but for this."""

    def prepare(here: Path) -> None:
        for kind in ("images", "masks"):
            (here / kind).mkdir()
            for index in range(3):
                Image.fromarray(np.full((8, 8), index % 2, np.uint8)).save(here / kind / f"{index}.png")
        change(here)

    return prepare


def _read_everything(here: Path) -> None:
    listing = list_folder(here, None, 0.3, 0)
    for item in (*listing.train, *listing.val):
        read_image(item.image)
        if item.mask:
            listing.read_labels(item)


def _lists(outside: Path) -> Iterator[Attack]:
    for entry in (f"{outside}/secret.png", "../../outside/secret.png", "train/../../../outside/secret.png"):
        listed = file("l.txt", f"{entry}\n".encode())
        yield Attack(f"list with {entry.replace(str(outside), '…')}", listed, read_a_list)


def _run_folders(outside: Path) -> Iterator[Attack]:
    for name, target in {
        "checkpoint": outside,
        "metrics.jsonl": outside / "secret.txt",
        "config.yaml": outside / "secret.txt",
        ".lock": outside / "secret.txt",
        "checkpoint/.00000004.json.1.tmp": outside / "secret.txt",
    }.items():
        yield Attack(f"run with a link for {name}, resumed", run_with(link(name, target)), _resume)
    for name in ("summary.json", "split.json", "metrics.jsonl"):
        yield Attack(f"run with a link for {name}, read", run_with(link(name, outside / "secret.json")), read_run)


def _resume(here: Path) -> None:
    config = recipe("moons")
    with reopen(here, config, allow_changes=False) as continued:
        checkpoint.restore_newest(continued.run.checkpoints, trained(1), lambda text: None)
        continued.run.write_lines(METRICS, continued.run.metrics_until(0))
        continued.run.log(iteration=1)
