"""Processes without their start-up time: everything is imported once, and each job runs in a fork of it.

A job is a `oneway` command, also by a script of a user's own, a function of the tests or a program, with what is to
happen to it: signals, full disks, limits. It is a process of its own in every respect that matters here; a signal ends
it, and the system cleans up behind it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

CHECKPOINT = f"{os.sep}checkpoint{os.sep}"


class Faults:
    """System calls on the files of checkpoints, counted, and one of them disturbed."""

    def __init__(self, fault: dict[str, Any]) -> None:
        self.fault = fault
        self.paths: dict[int, str] = {}
        self.seen = dict.fromkeys(("open", "write", "fsync", "replace"), 0)
        self.real = {name: getattr(os, name) for name in self.seen}
        for name in self.seen:
            setattr(os, name, getattr(self, name))

    def open(self, path: Any, *arguments: Any, **options: Any) -> int:
        path = os.fspath(path)
        if CHECKPOINT in f"{path}":
            self.count("open", lambda: None)
        descriptor = self.real["open"](path, *arguments, **options)
        self.paths[descriptor] = f"{path}"
        self.note("open", path)
        return descriptor

    def write(self, descriptor: int, content: Any) -> int:
        if CHECKPOINT in self.paths.get(descriptor, ""):
            half = memoryview(content)[: len(content) // 2]
            self.count("write", lambda: self.real["write"](descriptor, half))
        self.note("write", self.paths.get(descriptor, ""))
        return self.real["write"](descriptor, content)

    def fsync(self, descriptor: int) -> None:
        if CHECKPOINT in self.paths.get(descriptor, "") + os.sep:
            self.count("fsync", lambda: None)
        self.real["fsync"](descriptor)
        self.note("fsync", self.paths.get(descriptor, ""))

    def replace(self, source: Any, target: Any) -> None:
        if CHECKPOINT in f"{target}":
            self.count("replace", lambda: self.fault.get("after") and self.real["replace"](source, target))
        self.real["replace"](source, target)
        self.note("replace", f"{source}", f"{target}")

    def count(self, call: str, first: Any) -> None:
        """Strikes when its turn has come, after what the call still gets done."""
        turn, self.seen[call] = self.seen[call], self.seen[call] + 1
        if self.fault.get("call") != call or turn != self.fault["turn"]:
            return
        if "seconds" in self.fault:
            time.sleep(self.fault["seconds"])
            return
        first()
        if "errno" in self.fault:
            raise OSError(self.fault["errno"], os.strerror(self.fault["errno"]))
        os.kill(os.getpid(), signal.SIGKILL)

    def note(self, *event: str) -> None:
        if "trace" in self.fault and event[-1]:
            line = json.dumps(event) + "\n"
            descriptor = self.real["open"](self.fault["trace"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            self.real["write"](descriptor, line.encode())
            os.close(descriptor)


def in_iteration(iteration: int, happen: Callable[[], Any]) -> None:
    """Makes something happen when an iteration is done."""
    from oneway.common.progress import ProgressBar

    update = ProgressBar.update

    def counted(self: ProgressBar, done: int) -> None:
        update(self, done)
        if done == iteration and "seed" in self.title:  # of training, and not of decoding
            happen()

    ProgressBar.update = counted  # type: ignore[method-assign]


def kill_soon(delay: float) -> None:
    """SIGKILL a moment later, in the midst of the next iteration."""
    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()


def cut(pattern: str) -> None:
    """Somebody cuts a file short, in place."""
    (file,) = Path().glob(pattern)
    os.truncate(file, 100)


def lose_output(how: str) -> None:
    """What can become of the standard output and error of a long run."""
    if how == "ascii":
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr]
        return
    if how == "closed":
        os.close(1)
        os.close(2)
        sys.stdout = sys.stderr = None  # type: ignore[assignment]
        return
    if how == "terminal":
        master, writable = os.openpty()
        in_iteration(9, lambda: os.close(master))
    elif how == "reader":
        readable, writable = os.pipe()
        in_iteration(9, lambda: os.close(readable))
    else:
        writable = os.open("/dev/full", os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(writable, stream)
    os.close(writable)


def limit_processor_time() -> None:
    """A second is left: then, and with every further one, the system sends SIGXCPU."""
    seconds = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 60))


def limit_address_space(more: int) -> None:
    """From now on, the process may address only so many bytes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, resource.RLIM_INFINITY))


def leave_no_room() -> None:
    """As if the device had no memory to spare for data."""
    from oneway.engine import feed

    feed.SHARE_OF_DEVICE = 0


def command(job: dict[str, Any]) -> None:
    """`oneway …`; without its report, which takes longest, unless that is asked for."""
    import oneway.tools.report
    from oneway.cli import main

    if not job.get("report"):
        oneway.tools.report.write_report = lambda runs, page, *rest, **more: page
    sys.argv = ["oneway", *job["command"]]
    main()


def run(job: dict[str, Any]) -> NoReturn:
    """In the fork."""
    status = 0
    try:
        os.chdir(job["folder"])
        os.environ |= job.get("environment", {})
        for stream in (1, 2):
            name = Path(job["output"]) / f"{job['name']}.{'out' if stream == 1 else 'err'}"
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        if "largest_file" in job:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"],) * 2)
        if "fault" in job:
            Faults(job["fault"])
        if "kill_in_iteration" in job:
            iteration, delay = job["kill_in_iteration"]
            in_iteration(iteration, lambda: kill_soon(delay))
        if "raise_in_iteration" in job:
            in_iteration(job["raise_in_iteration"], lambda: 1 / 0)
        if "cut_in_iteration" in job:
            iteration, pattern = job["cut_in_iteration"]
            in_iteration(iteration, lambda: cut(pattern))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background would have it ignored
        for number in job.get("ignored", ()):
            signal.signal(number, signal.SIG_IGN)
        if "limit_time_in_iteration" in job:
            in_iteration(job["limit_time_in_iteration"], limit_processor_time)
        if "limit_memory_in_iteration" in job:
            iteration, more = job["limit_memory_in_iteration"]
            in_iteration(iteration, lambda: limit_address_space(more))
        if "lost_output" in job:
            lose_output(job["lost_output"])
        if "streamed" in job:
            leave_no_room()
        if "code" in job:
            exec(job["code"], {"__name__": "__main__"})
        elif "script" in job:
            sys.argv = [job["script"], *job["command"]]
            runpy.run_path(job["script"], run_name="__main__")
        elif "command" in job:
            command(job)
        else:
            module, function = job["function"].split(":")
            result = getattr(importlib.import_module(module), function)(**job["arguments"])
            (Path(job["output"]) / f"{job['name']}.json").write_text(json.dumps(result))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 99
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(status)


def prepare() -> None:
    """Imports what jobs would import, each anew, and renders what they train on."""
    import torch

    # Imported by PyTorch's optimisers, which takes two seconds.
    import torch._dynamo

    import oneway.cli
    import oneway.data.check.inspection
    import oneway.methods.consistency
    import oneway.models.mlp
    import oneway.models.swiftnet
    import oneway.tools.report
    import oneway.tools.train  # noqa: F401
    from oneway import data
    from oneway.config import Data

    torch.set_num_threads(1)
    for split in ("train", "val"):
        data.load(Data(name="streets", size=(32, 64), images=16)).read(split)


def serve() -> None:
    """Jobs from the standard input, one at a time: answers with the process, and when it has ended with its status."""
    for line in sys.stdin:
        job = json.loads(line)
        process = os.fork()
        if not process:
            run(job)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        import torch  # noqa: F401
    else:
        prepare()
    serve()
