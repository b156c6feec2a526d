"""A pool in a bucket, of a server that speaks S3 (moto), where that is installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from oneway.common.errors import UserError
from oneway.data.pool import patience
from oneway.tools.train import train
from pools import QUIET, opened
from ranks import free_port
from test_pool_run import from_shards, place, settings, weights
from test_torchrun import is_open

__all__ = ["from_shards", "place"]  # fixtures

pytestmark = pytest.mark.slow
SHARDS = "s3://bucket/pool/*.tar"


@pytest.fixture(scope="module")
def bucket(place) -> Iterator[tuple[object, subprocess.Popen[bytes]]]:
    """What changes a bucket in which the shards are, and the process of its server."""
    reason = "needs pip install s3fs 'moto[s3]' flask flask-cors"
    pytest.importorskip("s3fs", reason=reason)
    pytest.importorskip("moto", reason=reason)
    port, patch = free_port(), pytest.MonkeyPatch()
    patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "anything")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    words = ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    while not is_open(port):
        assert server.poll() is None
        time.sleep(0.05)
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    for shard in (place / "shards").glob("*.tar"):
        client.upload_file(str(shard), "bucket", f"pool/{shard.name}")
    yield client, server
    patch.undo()
    server.kill()
    server.wait()


def test_a_run_has_the_weights_of_one_on_disk(bucket, place, from_shards, tmp_path):
    """Although its server stops for 20 s when it begins to read."""
    _, server = bucket
    opened(SHARDS, tmp_path / "cache")
    os.kill(server.pid, signal.SIGSTOP)
    threading.Timer(20, lambda: os.kill(server.pid, signal.SIGCONT)).start()
    began = time.monotonic()
    config = settings(place, data={"unlabelled": SHARDS, "cache": tmp_path / "cache"})
    train(config, tmp_path / "run", resume=False, console=QUIET)
    assert time.monotonic() - began > 20
    assert weights(tmp_path / "run") == weights(from_shards)


def test_what_has_changed_is_named(bucket, place, tmp_path, monkeypatch):
    """A shard that is cut short, and one that is gone; at once."""
    client, _ = bucket
    monkeypatch.setattr(patience, "PAUSES", (100.0,))
    pool, expected = opened(SHARDS, tmp_path / "cache"), opened(place / "shards", tmp_path / "cache")
    assert pool.record == expected.record
    assert all(np.array_equal(pool.decode(at).pixels, expected.decode(at).pixels) for at in (0, 8, 29))
    client.put_object(Bucket="bucket", Key="pool/00001.tar", Body=b"0" * 1000)
    with pytest.raises(UserError, match=r"s3://bucket/pool/00001.tar: changed since it was indexed: it has 1000 bytes"):
        pool.decode(13)
    client.delete_object(Bucket="bucket", Key="pool/00002.tar")
    with pytest.raises(UserError, match=r"s3://bucket/pool/00002.tar: cannot be read \(.*not exist"):
        pool.decode(15)
