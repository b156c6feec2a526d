"""Files that try to run code, or ask for too much: pickles, YAML and models."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from oneway import config as configuration
from oneway.config import Model
from oneway.data.decode.images import read_image
from oneway.data.folder.description import read_description
from oneway.data.published import cifar10
from oneway.models.mlp import Perceptron
from oneway.runs.model_file import TrainedModel, digest, save_model
from oneway.runs.weights import read as read_weights
from reliability.attacks import (
    Action,
    Attack,
    checkpoint_of,
    file,
    load_a_model,
    load_checkpoint,
    read_a_list,
    read_a_mask,
    read_run,
    run_with,
)


def attacks(outside: Path) -> Iterator[Attack]:
    """Code that is run leaves a file outside."""
    yield from _pickles(outside / "trace")
    yield from _yaml(outside / "trace")
    yield from _models(outside)


class Payload:
    """Leaves a file behind when its pickle is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.trace}",)


def _wrappings(payload: Payload) -> dict[str, bytes]:
    archive, legacy, arrays, array = BytesIO(), BytesIO(), BytesIO(), BytesIO()
    torch.save({"weight": payload}, archive)
    torch.save({"weight": payload}, legacy, _use_new_zipfile_serialization=False)
    np.savez(arrays, weight=np.array([payload], dtype=object))
    np.save(array, np.array([payload], dtype=object), allow_pickle=True)
    return {
        "pickle": pickle.dumps(payload),
        "old pickle": pickle.dumps(payload, 0),
        "torch archive": archive.getvalue(),
        "old torch file": legacy.getvalue(),
        "npz": arrays.getvalue(),
        "npy": array.getvalue(),
    }


def _pickles(trace: Path) -> Iterator[Attack]:
    wrappings = _wrappings(Payload(trace))
    for kind, content in wrappings.items():
        yield Attack(f"{kind} as a model", file("m.safetensors", content), load_a_model)
        yield Attack(f"{kind} as weights", file("w.pth", content), lambda here: read_weights(str(here / "w.pth")))
        yield Attack(f"{kind} as a checkpoint", checkpoint_of(content), load_checkpoint)
    pickled = wrappings["pickle"]
    yield Attack("pickle as an image", file("a.png", pickled), lambda here: read_image(here / "a.png"))
    yield Attack("npy as a mask", file("a.png", wrappings["npy"]), read_a_mask)
    yield Attack("pickle in CIFAR-10", file("test_batch", pickled), lambda here: cifar10.read(here, "val"))
    yield Attack("pickle as a list", file("l.txt", pickled), read_a_list)
    for name in ("split.json", "summary.json", "metrics.jsonl"):
        yield Attack(f"pickle as {name}", run_with(file(name, pickled)), read_run)


def _yaml(trace: Path) -> Iterator[Attack]:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    for kind, text in {
        "a call": f"classes: !!python/object/apply:os.system ['touch {trace}']\n",
        "a new object": f"method: !!python/object/new:os.system ['touch {trace}']\n",
        "a module": "method: !!python/module:os\n",
        "a tuple of calls": f"labels: !!python/tuple [!!python/object/apply:os.system ['touch {trace}']]\n",
        "a billion laughs": laughs,
        "a billion laughs in a key": laughs + "method: *a39\nclasses: *a39\n",
        "brackets": "classes: " + "[" * 1000,
    }.items():
        content = text.encode()
        yield Attack(f"YAML with {kind} as settings", file("c.yaml", content), _build)
        yield Attack(f"YAML with {kind} as a description", file("d.yaml", content), _describe)


def _build(here: Path) -> object:
    return configuration.build(configuration.read_yaml(here / "c.yaml"), "c.yaml")


def _describe(here: Path) -> object:
    return read_description(here / "d.yaml")


def _models(outside: Path) -> Iterator[Attack]:
    for name, words in {
        "a factory of its own": {"model": {"factory": "evil:make"}},
        "a factory of the system": {"model": {"factory": "os:abort"}},
        "a network from a hub": {"model": {"name": "swiftnet", "backbone": "hf_hub:someone/something"}},
        "a network from a folder": {"model": {"name": "swiftnet", "backbone": f"local-dir:{outside}"}},
        "a network of gigabytes": {"model": {"name": "swiftnet", "backbone": "regnety_1280"}},
        "a network of no width": {"model": {"name": "swiftnet", "width": 1e-9}},
        "weights elsewhere": {"model": {"weights": str(outside / "secret.pth")}},
        "no classes": {"classes": []},
        "a million classes": {"classes": ["a"] * 10**6},
        "classes that move the cursor": {"classes": ["\x1b[2J", "b"]},
        "colours out of range": {"colours": [[0, 0, 300], [0, 0, 0]]},
        "a newer format": {"format": 10**9},
    }.items():
        yield Attack(f"model with {name}", _model(outside / "trace", **words), load_a_model)


def _model(trace: Path, **words: Any) -> Action:
    """A model file with these words and a checksum that matches; beside it, code that leaves a file behind."""

    def prepare(here: Path) -> None:
        path = here / "m.safetensors"
        save_model(path, TrainedModel(Perceptron(2), ("a", "b"), ()), Model(name="mlp"))
        with safetensors.safe_open(path, "pt") as opened:
            about = json.loads(opened.metadata()["oneway"])
            content = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (not a dict)
        about |= {**words, "model": about["model"] | words.get("model", {})}
        del about["sha256"]
        about["sha256"] = digest(about, content)
        path.write_bytes(safetensors.torch.save(content, {"oneway": json.dumps(about)}))
        (here / "evil.py").write_text(f"from pathlib import Path\nPath({str(trace)!r}).touch()\n")

    return prepare
