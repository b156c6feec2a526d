"""A pool behind nginx, where that is installed: a run goes on, or stops with the address and a checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pools import QUIET
from ranks import free_port
from test_pool_run import place, settings, weights

__all__ = ["place"]  # a fixture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx: apt-get install nginx-light"),
]
ITERATIONS = 60
"""More than are read ahead, so that most images are asked for while it trains."""

CONFIGURATION = """
daemon off; user root; worker_processes 2; pid {home}/pid; error_log {home}/error.log;
events {{}}
http {{
  access_log {home}/access.log; client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home};
  uwsgi_temp_path {home}; scgi_temp_path {home};
  limit_req_zone $binary_remote_addr zone=all:1m rate=8r/s;
  server {{ listen 127.0.0.1:{port}; root {shards}; {rules} }}
}}
"""


@dataclass
class Nginx:
    """The server of a folder of shards."""

    home: Path
    shards: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{{00000..00004}}.tar"

    def obey(self, rules: str) -> None:
        """From now on it has other rules."""
        configure(self.home, self.shards, self.port, rules)
        os.kill(self.process.pid, signal.SIGHUP)
        time.sleep(1)

    def answers(self, status: int) -> int:
        """How often it has answered so."""
        return (self.home / "access.log").read_text().count(f'HTTP/1.1" {status} ')


def configure(home: Path, shards: Path, port: int, rules: str = "") -> None:
    (home / "nginx.conf").write_text(CONFIGURATION.format(home=home, shards=shards, port=port, rules=rules))


@pytest.fixture
def nginx(place, tmp_path) -> Iterator[Nginx]:
    home, port = tmp_path / "nginx", free_port()
    home.mkdir()
    home.chmod(0o755)
    configure(home, place / "shards", port)
    command = ["nginx", "-c", home / "nginx.conf", "-p", home, "-e", home / "error.log"]
    process = subprocess.Popen(command, start_new_session=True)
    while not (home / "pid").exists():
        assert process.poll() is None, (home / "error.log").read_text()
        time.sleep(0.02)
    yield Nginx(home, place / "shards", port, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def expected(place) -> bytes:
    """The weights of a run on the shards themselves."""
    from oneway.tools.train import train

    train(settings(place, train={"iterations": ITERATIONS}), place / "long", resume=False, console=QUIET)
    return weights(place / "long")


def start(place: Path, address: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    """The program as it is, in a process of its own."""
    data = {"unlabelled": address, "cache": folder / "cache"}
    config = settings(place, data=data, train={"iterations": ITERATIONS, "checkpoint_every": 10})
    (folder / "config.yaml").write_text(config.to_yaml())
    command = ["train", "folder", "--config", folder / "config.yaml", "--out", folder / "run", *words]
    return subprocess.Popen([sys.executable, "-m", "oneway", *map(str, command)], stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def test_a_server_that_stops_for_20_seconds_is_waited_for(nginx, place, expected, tmp_path):
    """All its processes are stopped while the run trains; it ends with the weights it would have had."""
    process = start(place, nginx.address, tmp_path)
    wait_for(tmp_path / "run" / "checkpoint" / "00000010.json", process)
    os.killpg(nginx.process.pid, signal.SIGSTOP)
    asked = nginx.answers(206)
    time.sleep(20)
    assert process.poll() is None
    os.killpg(nginx.process.pid, signal.SIGCONT)
    assert process.wait(240) == 0, process.communicate()[1]
    assert nginx.answers(206) > asked > 30
    assert weights(tmp_path / "run") == expected


def test_a_server_that_wants_fewer_requests_is_asked_again(nginx, place, expected, tmp_path):
    """It refuses what comes too fast with 503."""
    nginx.obey("limit_req zone=all burst=2 nodelay;")
    process = start(place, nginx.address, tmp_path)
    assert process.wait(400) == 0, process.communicate()[1]
    assert nginx.answers(503) > 10
    assert weights(tmp_path / "run") == expected


def test_a_server_that_fails_stops_the_run_with_its_address(nginx, place, expected, tmp_path):
    """And a checkpoint, from which it goes on when the server is well again."""
    process = start(place, nginx.address, tmp_path)
    wait_for(tmp_path / "run" / "checkpoint" / "00000010.json", process)
    nginx.obey("location ~ 00002 { return 500; }")
    assert process.wait(240) == 1
    said = " ".join(process.communicate()[1].split())
    assert "00002.tar: cannot be read (the server answers 500), in 8 attempts over" in said
    assert "--resume continues" in said
    assert not (tmp_path / "run" / "summary.json").exists()
    nginx.obey("")
    process = start(place, nginx.address, tmp_path, "--resume")
    assert process.wait(240) == 0, process.communicate()[1]
    assert weights(tmp_path / "run") == expected
