"""Processes that torchrun starts, as the page on many GPUs says: two nodes of two, and faults at random moments."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import safetensors.torch
import torch
import yaml

from ranks import free_port

PAGE = Path(__file__).parent.parent / "docs" / "many-gpus.md"
ITERATIONS = 240
FLAGS = (
    "streets --data.images 16 --data.size 32 64 --jitter.crop 32 64 --model.width 0.125 --labels 4 "
    f"--train.batch-labelled 4 --train.batch-unlabelled 4 --train.iterations {ITERATIONS} "
    "--train.checkpoint-every 5 --train.validate-every 120 --train.log-every 10 --train.device cpu"
).split()
A_FEW = ["12" if word == str(ITERATIONS) else word for word in FLAGS]
pytestmark = pytest.mark.slow


def launch(words: list[str], folder: Path, name: str = "said", **more: str) -> subprocess.Popen[str]:
    """Starts torchrun in a folder, with more variables; what all its processes say is in a file there."""
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    with (folder / name).open("w") as file:
        return subprocess.Popen(command, cwd=folder, env=variables, stdout=file, stderr=subprocess.STDOUT, text=True)


def lines_of_the_page() -> dict[str, list[str]]:
    """Its torchrun commands that train, as words: two by themselves, and that of the Slurm job."""
    text = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^(?:srun )?torchrun (.+ train .+)$", text, re.MULTILINE)
    return dict(zip(("one computer", "two computers", "Slurm"), map(shlex.split, found), strict=True))


def adapted(words: list[str], endpoint: str) -> list[str]:
    """Two processes instead of eight and two nodes, on this computer, of a run that takes a moment."""
    begin, end = words.index("cityscapes"), words.index("--out")
    here = {"8": "2", "--nproc-per-node=8": "--nproc-per-node=2", "$SLURM_NNODES": "2", "$SLURM_JOB_ID": "1"}
    here |= dict.fromkeys(("node0:29500", "$first:29500"), endpoint) | {"/runs/c": "runs/c"}
    return [here.get(word, word) for word in (*words[:begin], *A_FEW, *words[end:])]


@pytest.mark.parametrize("words", lines_of_the_page().values(), ids=lines_of_the_page())
def test_the_commands_of_the_page(words, tmp_path):
    """As they stand there: on one computer, and as two nodes of two processes."""
    assert_trained(adapted(words, f"127.0.0.1:{free_port()}"), 2 if "--nnodes" in words else 1, tmp_path)


def test_the_job_of_the_page(tmp_path):
    """That of Kubernetes, whose operator tells torchrun of the others by variables: two nodes of two processes."""
    (block,) = re.findall(r"^```yaml\n(.+?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    job = yaml.safe_load(block)["spec"]
    (container,) = job["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["command"][0] == "torchrun"
    policy = job["elasticPolicy"]
    told = {
        "PET_RDZV_BACKEND": policy["rdzvBackend"],
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{free_port()}",
        "PET_NNODES": f"{policy['minReplicas']}:2",  # of which both come, so that nobody waits for more
        "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
        **{each["name"]: each["value"] for each in container["env"]},
    }
    assert_trained(adapted([*container["command"][1:], *container["args"]], ""), 2, tmp_path, **told)


def assert_trained(words: list[str], nodes: int, folder: Path, **variables: str) -> None:
    started = [launch(words, folder, f"node{node}", **variables) for node in range(nodes)]
    said = [(folder / f"node{node}").read_text() for node, each in enumerate(started) if each.wait(300) is not None]
    assert [each.returncode for each in started] == [0] * nodes, said
    assert f"starts, with {2 * nodes} processes" in " ".join(said)
    assert (folder / "runs" / "c" / "summary.json").exists()


COUNTED = """
import json, os, sys
from torch.profiler import ProfilerActivity, profile
from oneway.cli import run
with profile(activities=[ProfilerActivity.CPU]) as seen:
    try:
        run()
    except SystemExit as ended:
        assert not ended.code, ended.code
names = [event.name for event in seen.events()]
exchanged = [name for name in names if name.startswith(("c10d::", "gloo:"))]
with open(f"ops{os.environ['RANK']}", "w") as file:
    json.dump([names.count("aten::convolution"), exchanged], file)
"""
"""What PyTorch itself notes of a training: convolutions, and what processes exchange."""


def test_a_single_process_trains_as_without_torchrun(tmp_path):
    """The same weights and losses to the bit, and nothing is exchanged; two processes exchange, and it is noticed."""
    (tmp_path / "counted.py").write_text(COUNTED)
    fewer = {str(ITERATIONS): "4", "10": "1"}
    words = ["train", *(fewer.get(word, word) for word in FLAGS)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "oneway", *words, "--out", "0"], cwd=tmp_path, env=variables, check=True)
    exchanged = {}
    for processes in ("1", "2"):
        command = ["--standalone", "--nproc-per-node", processes, "counted.py", *words, "--out", processes]
        assert launch(command, tmp_path).wait(300) == 0, (tmp_path / "said").read_text()
        convolutions, exchanged[processes] = json.loads((tmp_path / "ops0").read_text())
        assert convolutions > 0
    assert exchanged["1"] == []
    assert len(exchanged["2"]) > 4 * 40  # of every batch norm of four iterations
    without, alone = (
        safetensors.torch.load_file(tmp_path / name / "checkpoint" / "00000004.safetensors") for name in "01"
    )
    assert without.keys() == alone.keys()
    assert all(torch.equal(without[name], alone[name]) for name in without)
    assert (tmp_path / "0" / "metrics.jsonl").read_text() == (tmp_path / "1" / "metrics.jsonl").read_text()


@dataclass
class Training:
    """A run of several processes under torchrun."""

    folder: Path
    processes: int = 2
    restarts: int = 0
    meeting: str = "--standalone"
    torchrun: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        words = [*self.meeting.split(), "--nproc-per-node", str(self.processes), "--max-restarts", str(self.restarts)]
        self.folder.mkdir(exist_ok=True)
        name = f"said{time.monotonic_ns()}"
        self.said = self.folder / name
        self.torchrun = launch([*words, "-m", "oneway", "train", *FLAGS, "--out", "run", "--resume"], self.folder, name)

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def ranks(self) -> dict[int, int]:
        """Its processes by number, as the system knows them; those that are just starting are not there."""
        found = {}
        children = Path(f"/proc/{self.torchrun.pid}/task/{self.torchrun.pid}/children").read_text().split()
        for child in map(int, children):
            try:
                variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found |= {int(each[5:]): child for each in variables if each.startswith(b"RANK=")}
        return found

    @property
    def words(self) -> str:
        """What all processes of this folder have said so far, on one line."""
        return " ".join(" ".join(file.read_text() for file in sorted(self.folder.glob("said*"))).split())

    def wait_for(self, condition: str, seconds: float = 120) -> None:
        """Until the processes have said something."""
        deadline = time.monotonic() + seconds
        while not re.search(condition, self.words):
            assert self.torchrun.poll() is None, self.words
            assert time.monotonic() < deadline, (condition, self.words)
            time.sleep(0.05)

    def tensors(self) -> dict[str, torch.Tensor]:
        return safetensors.torch.load_file(self.run / "checkpoint" / f"{ITERATIONS:08d}.safetensors")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def strike(kind: str, process: int) -> None:
    if kind == "memory":
        used = int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(process, resource.RLIMIT_AS, (used, used))
    else:
        os.kill(process, getattr(signal, kind))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Training:
    training = Training(tmp_path_factory.mktemp("undisturbed"))
    assert training.torchrun.wait(300) == 0, training.said.read_text()
    return training


def test_ten_faults_at_random_moments_change_nothing(undisturbed, tmp_path, record_property):
    """Killed, stopped, without memory, either of two processes: the run ends byte-equal to the undisturbed one."""
    chance = random.Random(7)
    training = Training(tmp_path, restarts=10)
    kinds = ["SIGKILL", "memory", "SIGKILL", "SIGSTOP", "SIGKILL", "memory", "SIGKILL", "SIGSTOP", "memory", "SIGKILL"]
    begun, seconds = 0, []
    for kind in kinds:
        deadline = time.monotonic() + 120
        while len(re.findall("starts, with|continues after", training.said.read_text())) <= begun:
            assert time.monotonic() < deadline, training.said.read_text()
            time.sleep(0.05)
        begun = len(re.findall("starts, with|continues after", training.said.read_text()))
        time.sleep(chance.uniform(0, 2))
        processes = training.ranks()
        if training.torchrun.poll() is not None or len(processes) < 2:
            break  # it has ended before all ten
        struck = time.monotonic()
        strike(kind, processes[chance.randrange(2)])
        while not all(map(is_gone, processes.values())):
            assert time.monotonic() - struck < 60, training.said.read_text()
            time.sleep(0.05)
        seconds.append((kind, round(time.monotonic() - struck, 1)))
    assert training.torchrun.wait(300) == 0, training.said.read_text()
    print("seconds from fault to exit:", seconds)
    record_property("seconds", seconds)
    assert len(seconds) == len(kinds)
    expected, found = undisturbed.tensors(), training.tensors()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert (training.run / "metrics.jsonl").read_text() == (undisturbed.run / "metrics.jsonl").read_text()


@pytest.mark.parametrize("processes", [1, 4])
def test_another_number_of_processes_continues(undisturbed, processes, tmp_path):
    """Stopped by a signal to torchrun, the run goes on with one or four, and says so."""
    first = Training(tmp_path)
    first.wait_for("starts, with 2 processes")
    deadline = time.monotonic() + 120
    while not (first.run / "checkpoint" / "00000005.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.torchrun.send_signal(signal.SIGTERM)
    assert first.torchrun.wait(60) != 0
    assert re.search(r"Stopped after \d+ of 240 iterations", first.said.read_text()), first.said.read_text()
    second = Training(tmp_path, processes=processes)
    assert second.torchrun.wait(300) == 0, second.said.read_text()
    assert f"processes 2 → {processes}" in " ".join(second.said.read_text().split())
    assert (second.run / "summary.json").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_makes_a_checkpoint_of_all(undisturbed, rank, tmp_path):
    """Within the iteration or the next; torchrun starts them again, and they continue to the byte."""
    training = Training(tmp_path, restarts=1)
    training.wait_for(r"starts, with 2 processes.* \d+/240 ")
    os.kill(training.ranks()[rank], signal.SIGTERM)
    training.wait_for("continues after")
    assert training.torchrun.wait(300) == 0, training.said.read_text()
    stopped, continued = re.findall(r"Stopped after (\d+) of|continues after (\d+) of", training.said.read_text())
    assert stopped[0] == continued[1] != ""
    expected, found = undisturbed.tensors(), training.tensors()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_first_process_that_is_stopped_ends_the_others(tmp_path):
    """Within a minute, with its name: it is the one that looks after the others."""
    training = Training(tmp_path)
    training.wait_for("starts, with 2 processes")
    processes, struck = training.ranks(), time.monotonic()
    os.kill(processes[0], signal.SIGSTOP)
    while not all(map(is_gone, processes.values())):
        assert time.monotonic() - struck < 60, training.said.read_text()
        time.sleep(0.05)
    assert training.torchrun.wait(30) != 0
    assert re.search(r"process 1 of 2 on \S+ has stopped: process 0 of 2 on \S+ has not answered", training.words)


def test_a_node_may_go_and_come_back(undisturbed, tmp_path, monkeypatch):
    """With `--nnodes 1:2`: its run goes on with one process, and with two again, from the last checkpoint each time."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")  # as the page says
    port = free_port()
    meeting = f"--nnodes 1:2 --rdzv-backend c10d --rdzv-id 1 --rdzv-endpoint 127.0.0.1:{port}"
    stays = Training(tmp_path, 1, 3, meeting)
    while not is_open(port):  # others meet there
        time.sleep(0.05)
    goes = Training(tmp_path, 1, 3, meeting)
    stays.wait_for(r"starts, with 2 processes.* \d+/240 ")
    for process in (*goes.ranks().values(), goes.torchrun.pid):
        os.kill(process, signal.SIGKILL)
    stays.wait_for(r"processes 2 → 1.* continues after \d+ of 240 iterations\.")
    back = Training(tmp_path, 1, 3, meeting)
    stays.wait_for(r"processes 1 → 2.* continues after \d+ of 240 iterations, with 2 processes")
    assert [each.torchrun.wait(300) for each in (stays, back)] == [0, 0], stays.words
    found, expected = (
        {line["iteration"]: line["supervised"] for line in map(json.loads, lines) if "supervised" in line}
        for lines in ((run / "metrics.jsonl").read_text().splitlines() for run in (stays.run, undisturbed.run))
    )
    assert found.keys() == expected.keys()
    assert all(abs(found[at] / expected[at] - 1) < 0.1 for at in expected)  # the same images; rounding grows
