"""A pool on another machine: what comes late is waited for, what comes damaged is asked for again or refused."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from oneway.common.errors import UserError
from oneway.data.pool import patience as reading
from oneway.data.pool.addresses import connect, redirected
from oneway.tools.shards import pack as pack_with_index
from oneway.tools.train import train
from pools import QUIET, opened
from range_server import FAULTS, misbehave, serving
from test_pool_run import from_shards, place, settings, weights

__all__ = ["from_shards", "place"]  # fixtures


@pytest.fixture
def served(place, tmp_path):
    """Shards, and the address that they are served at."""
    shards = shutil.copytree(place / "shards", tmp_path / "served")
    with serving(shards) as address:
        yield shards, f"{address}/{{00000..00004}}.tar"


@pytest.fixture(autouse=True)
def impatient(monkeypatch, request):
    """Attempts follow each other faster than in life, but for tests that measure it."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(reading, "TIMEOUT", 0.5)
        monkeypatch.setattr(reading, "PAUSES", (0.05, 0.1, 0.2, 0.4))


def remote(place, address, cache, **changes):
    return settings(place, data={"unlabelled": address, "cache": cache}, **changes)


def test_a_run_over_http_has_the_weights_of_one_on_disk(served, place, from_shards, tmp_path):
    """And is the same run: it could be continued from either."""
    train(remote(place, served[1], tmp_path / "cache"), tmp_path / "run", resume=False, console=QUIET)
    assert weights(tmp_path / "run") == weights(from_shards)


@pytest.mark.parametrize("kind", ["error", "short", "cut", "stall"])
def test_what_goes_wrong_a_few_times_changes_nothing(kind, served, place, tmp_path):
    """Neither the index nor an image."""
    shards, address = served
    expected = opened(shards, tmp_path / "expected")
    misbehave(shards, kind, 3, seconds=1)
    pool = opened(address, tmp_path / "cache")
    assert pool.record == expected.record
    misbehave(shards, kind, 3, seconds=1)
    for number in (0, 11, 29):
        assert np.array_equal(pool.decode(number).pixels, expected.decode(number).pixels)
    assert not pool.broken


@pytest.mark.parametrize("kind", ["error", "cut"])
def test_what_goes_wrong_for_long_stops_the_run_with_the_address_and_a_checkpoint(
    kind, served, place, from_shards, tmp_path, monkeypatch
):
    """From which it goes on to the same weights when the server is back."""
    shards, address = served
    config = remote(place, address, tmp_path / "cache")
    opened(address, tmp_path / "cache")
    import oneway.tools.train as training

    choose = training.choose_step

    def choose_and_break(*given, **more):
        step = choose(*given, **more)
        steps = []

        def broken(*inputs):
            steps.append(None)
            if len(steps) == 1:
                misbehave(shards, kind, 10**6)
            return step(*inputs)

        return broken

    monkeypatch.setattr("oneway.engine.prefetch.BATCHES_AHEAD", 1)
    monkeypatch.setattr("oneway.data.pool.pool.THREADS_THAT_WAIT", 1)
    with monkeypatch.context() as patch:
        patch.setattr(training, "choose_step", choose_and_break)
        expected = r"http://\S+\.tar: cannot be read \(.+\), in 5 attempts over \d+ s. Stopped after \d of 6.*--resume"
        with pytest.raises(UserError, match=expected):
            train(config, tmp_path / "run", resume=False, console=QUIET)
    (shards / FAULTS).unlink()
    train(config, tmp_path / "run", resume=True, console=QUIET)
    assert weights(tmp_path / "run") == weights(from_shards)


def test_other_bytes_are_never_decoded(served, tmp_path):
    """What lies before an image must be its header; behind that, its checksum decides where the index has one."""
    shards, address = served
    pool = opened(address, tmp_path / "cache")
    misbehave(shards, "other", 10**6)
    with pytest.raises(UserError, match=r"http://\S+tar: changed since it was indexed"):
        pool.decode(3)


def test_servers_that_cannot_give_parts_are_refused(served, tmp_path):
    """And files that are not there, at once."""
    shards, address = served
    misbehave(shards, "whole", 10**6)
    with pytest.raises(UserError, match=r"http://\S+tar: its server gives whole files only"):
        opened(address, tmp_path / "cache")
    (shards / FAULTS).unlink()
    with pytest.raises(UserError, match=r"00005.tar: the server answers 404"):
        opened(address.replace("00004", "00005"), tmp_path / "cache")


@pytest.mark.parametrize("way", ["/301/http", "/302/http/303/http/307/http/308/http/302/http"])
def test_redirects_are_followed(way, served, place, tmp_path):
    """To another host too; and again from the start where what they led to is no longer good."""
    shards, address = served
    expected = opened(place / "shards", tmp_path / "cache")
    pool = opened(address.replace("/{", f"{way}/{{"), tmp_path / "cache")
    assert pool.record == expected.record
    for number in (0, 29):
        assert np.array_equal(pool.decode(number).pixels, expected.decode(number).pixels)
    misbehave(shards, "gone", 1)
    assert np.array_equal(pool.decode(0).pixels, expected.decode(0).pixels)
    misbehave(shards, "gone", 10**6)
    with pytest.raises(UserError, match=r"00000.tar: the server answers 404"):
        pool.decode(0)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("/302/file", r"redirects to 'file://\S+', which is not followed"),
        ("/302/ftp", r"redirects to 'ftp://\S+', which is not followed"),
        (6 * "/302/http", "redirects more than 5 times"),
    ],
)
def test_redirects_that_lead_nowhere_are_not_followed(way, message, served, tmp_path):
    """Out of HTTP, or round and round; at once."""
    with pytest.raises(UserError, match=message):
        opened(served[1].replace("/{", f"{way}/{{"), tmp_path / "cache")


def test_redirects_never_give_up_encryption():
    """They may take it up, and be relative; what is no address is none."""
    here = "https://one/a/b.tar?x"
    assert redirected(here, here, "../c d.tar") == "https://one/c%20d.tar"
    assert redirected(here, here, "//two/c") == "https://two/c"
    assert redirected(here, "http://one/a", "https://one/a") == "https://one/a"
    for location in ("http://one/a/b.tar", "", None, "https://one:x/", "https://[one/"):
        with pytest.raises(UserError, match="which is not followed"):
            redirected(here, here, location)


def test_proxies_of_the_environment_are_used(served, place, tmp_path, monkeypatch):
    """But for hosts that need none."""
    address = served[1]
    expected = opened(place / "shards", tmp_path / "cache")
    monkeypatch.setenv("http_proxy", address.rpartition("/")[0])
    monkeypatch.setenv("no_proxy", "localhost")
    pool = opened("http://pool.invalid/{00000..00004}.tar", tmp_path / "cache")
    assert np.array_equal(pool.decode(3).pixels, expected.decode(3).pixels)
    monkeypatch.setenv("no_proxy", "pool.invalid")
    with pytest.raises(UserError, match=r"http://pool.invalid/00000.tar: cannot be read"):
        opened("http://pool.invalid/{00000..00004}.tar", tmp_path / "elsewhere")


def test_encrypted_requests_go_through_a_tunnel(monkeypatch):
    """The proxy has its own credentials, and is told the host alone."""
    with closing(socket.create_server(("127.0.0.1", 0))) as proxy, ThreadPoolExecutor() as threads:
        monkeypatch.setenv("https_proxy", f"http://me:p%40ss@127.0.0.1:{proxy.getsockname()[1]}")

        def refuse():
            with proxy.accept()[0] as connection:
                head = connection.recv(2**16).decode()
                connection.sendall(b"HTTP/1.1 403 No\r\n\r\n")
                return head

        head = threads.submit(refuse)
        with pytest.raises(OSError, match="403"):
            connect("https", "pool.invalid", 5).ask("https://pool.invalid/secret.tar", 0, 1)
        assert head.result().startswith("CONNECT pool.invalid:443 ")
        assert f"Proxy-Authorization: Basic {b64encode(b'me:p@ss').decode()}" in head.result()
        assert "secret" not in head.result()


def test_a_shard_that_is_replaced_on_its_server_is_noticed(served, tmp_path):
    """By what the server calls its version."""
    shards, address = served
    pool = opened(address, tmp_path / "cache")
    os.utime(shards / "00000.tar", (1, 1))
    with pytest.raises(UserError, match=r"00000.tar: changed since it was indexed: it is another version"):
        pool.decode(0)


def test_an_index_beside_shards_is_fetched(place, tmp_path):
    """Instead of reading the headers of all images."""
    pack_with_index(place / "more", tmp_path / "shards", 7, QUIET)
    with serving(tmp_path / "shards") as address:
        pool = opened(f"{address}/{{00000..00004}}.tar", tmp_path / "cache")
        assert pool.record == opened(place / "more", tmp_path / "cache").record
        misbehave(tmp_path / "shards", "flip", 2)  # which the checksums in that index tell
        pool.decode(3)
        misbehave(tmp_path / "shards", "flip", 10**6)
        with pytest.raises(UserError, match=r"damaged on its way"):
            pool.decode(4)


def test_other_stores_are_read_through_fsspec(place, tmp_path):
    """Here, one in memory; globs find their shards."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for shard in (place / "shards").glob("*.tar"):
        store.pipe_file(f"/bucket/{shard.name}", shard.read_bytes())
    pool, expected = opened("memory://bucket/*.tar", tmp_path / "cache"), opened(place / "shards", tmp_path / "cache")
    assert pool.record == expected.record
    assert np.array_equal(pool.decode(8).pixels, expected.decode(8).pixels)
    store.pipe_file("/bucket/00001.tar", b"0" * 1000)
    with pytest.raises(UserError, match=r"00001.tar"):
        pool.decode(8)


def test_a_missing_extra_has_its_command(tmp_path, monkeypatch):
    """For what reads object stores."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UserError, match=r"s3://.*pip install 'oneway\[remote\]'"):
        opened("s3://bucket/0.tar", tmp_path / "cache")


def test_a_run_that_waits_for_its_server_answers_a_signal(served, place, tmp_path, monkeypatch):
    """Within a second or two, with a checkpoint, and without waiting for the server at the end."""
    shards, address = served
    opened(address, tmp_path / "cache")
    monkeypatch.setattr(reading, "TIMEOUT", 30)
    config = remote(place, address, tmp_path / "cache", train={"iterations": 500})
    from oneway.common.interrupt import Interrupted

    def stall_and_kill():
        while not (tmp_path / "run").exists():
            time.sleep(0.01)
        misbehave(shards, "stall", 10**6, seconds=30)
        time.sleep(1.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stall_and_kill).start()
    began = time.monotonic()
    with pytest.raises(Interrupted, match=r"Stopped after \d+ of 500"):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_server_that_is_silent_for_20_seconds_is_waited_for(served, place, from_shards, tmp_path):
    """As the program is, in a process of its own: it ends with the weights it would have had."""
    shards, address = served
    misbehave(shards, "stall", 6, seconds=20)
    config = remote(place, address, tmp_path / "cache")
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    words = ["train", "folder", "--config", tmp_path / "config.yaml", "--out", tmp_path / "run"]
    subprocess.run([sys.executable, "-m", "oneway", *words], check=True, timeout=300)
    assert weights(tmp_path / "run") == weights(from_shards)
