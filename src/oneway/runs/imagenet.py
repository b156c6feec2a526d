"""ImageNet weights of timm's networks: a file in the cache of the Hugging Face hub, or fetched into it."""

from __future__ import annotations

import queue
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError

from oneway.common.errors import UserError
from oneway.common.importing import import_timm
from oneway.common.words import listed
from oneway.models.encoder import refuse_unknown

TORCHVISION_TAG = "tv_in1k"
"""torchvision's ImageNet training, the one the paper starts from."""
FILES = ("model.safetensors", "pytorch_model.bin")
"""File names of timm's weights on the hub, the preferred one first."""
PATIENCE = 5.0
"""Seconds after which a hub that has not answered counts as out of reach."""


class Published(NamedTuple):
    """Published weights of a network."""

    name: str
    """timm's: architecture and training, such as `resnet18.tv_in1k`."""

    file: Path


def fetch(backbone: str) -> Published:
    """Fetch the file with the ImageNet weights of a backbone; without a network if it is in the hub's cache.

    Raises:
        UserError: There are none, or they are not in the cache and the hub cannot be reached, which takes seconds to
            find out; says how to fetch them, how to give a file, and how to do without.
    """
    refuse_unknown(backbone)
    name, repository, files = _published(backbone)
    for file in files:
        cached = try_to_load_from_cache(repository, file)
        if isinstance(cached, str):
            return Published(name, Path(cached))
    reason = _out_of_reach(hf_hub_url(repository, files[0]))
    if not reason:
        for file in files:
            try:
                return Published(name, Path(hf_hub_download(repository, file)))
            except EntryNotFoundError:
                reason = "no such file there"
            except Exception as error:  # hubs, disks and networks fail in many ways; to the user they are one
                reason = type(error).__name__
                break
    folder = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    raise UserError(
        f"model.weights imagenet: the weights of {backbone} are not on this computer, and cannot be fetched from "
        f"{constants.ENDPOINT} ({reason}). One of these helps:\n"
        f"- Fetch them once, where there is a network: hf download {repository} {files[0]}\n"
        f"  On this computer they then lie in {folder} and are found there; HF_HOME moves that folder.\n"
        "  On another one, the command prints where the file lies: bring it here, and give it.\n"
        "- Give a file: --model.weights FILE (in `reproduce`, --weights FILE), a .safetensors or .pth file of timm's "
        "or torchvision's.\n"
        "- Start from random weights, which takes more labels and iterations: --model.weights none"
    )


def _published(backbone: str) -> tuple[str, str, tuple[str, ...]]:
    """The name of a backbone's weights, the repository on the hub, and the files it may have there."""
    timm = import_timm()

    known = timm.list_pretrained(f"{backbone.partition('.')[0]}.*")
    preferred = f"{backbone}.{TORCHVISION_TAG}"
    name = preferred if preferred in known else backbone
    about = timm.get_pretrained_cfg(name) if name in known or "." not in name else None
    if about is not None and about.hf_hub_id:
        name = f"{about.architecture}.{about.tag}" if about.tag else backbone
        return name, about.hf_hub_id, (about.hf_hub_filename,) if about.hf_hub_filename else FILES
    others = f" It has {listed(known, most=8)}." if known and about is None else ""
    file = f"download {about.url} and give the file" if about is not None and about.url else "give a file"
    raise UserError(
        f"model.weights imagenet: the Hugging Face hub has no weights of {backbone}.{others} Choose another "
        f"--model.backbone, {file} (--model.weights FILE), or start from random weights (--model.weights none)."
    )


def _out_of_reach(url: str) -> str:
    """Why the hub does not answer a request for a file; empty if it does.

    The hub's own functions repeat a request for up to a minute, and looking up an address knows no time limit.
    """
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ask() -> None:
        try:
            get_hf_file_metadata(url, timeout=PATIENCE)
            answers.put("")
        except EntryNotFoundError:  # an answer: it may be there under another name
            answers.put("")
        except Exception as error:  # offline mode, proxies, certificates, time limits
            answers.put(type(error).__name__)

    Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=PATIENCE)
    except queue.Empty:
        return f"no answer within {PATIENCE:.0f} s"
