"""Files that fsspec reads, from object stores and others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.data.pool import patience
from oneway.data.pool.files import Status, changed
from oneway.data.pool.patience import Again, Result, patiently


class StoreFiles:
    """Those of one scheme, such as `s3`."""

    waits = True

    def __init__(self, scheme: str) -> None:
        fsspec = import_extra("fsspec", "remote", f"{scheme}://")
        try:
            self.system: Any = fsspec.filesystem(scheme, **_settings(scheme))
        except (ImportError, ValueError) as error:
            raise UserError(
                f"{scheme}:// cannot be read ({error}). Install it with: pip install 'oneway[remote]'"
            ) from None
        self.closed = threading.Event()

    def status(self, path: str) -> Status:
        return patiently(path, lambda: self._status_now(path), self.closed)

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        def read_once() -> bytes:
            try:
                content: bytes = self._try(path, lambda: self.system.cat_file(path, start=start, end=start + count))
                wanted = count if expected is None else max(min(count, expected.size - start), 0)
                if expected is not None and len(content) != wanted:
                    raise Again(f"{len(content)} of {wanted} bytes came")
                return content
            except Again:
                if expected is not None and (found := self._status_now(path)) != expected:
                    raise changed(path, expected, found) from None
                raise

        return patiently(path, read_once, self.closed)

    def glob(self, pattern: str) -> list[str]:
        """Addresses that match."""
        found = patiently(pattern, lambda: self._try(pattern, lambda: self.system.glob(pattern)), self.closed)
        return sorted(self.system.unstrip_protocol(path) for path in found)

    def close(self) -> None:
        self.closed.set()

    def _status_now(self, path: str) -> Status:
        found = self._try(path, lambda: self.system.info(path))
        stamp = next((found[key] for key in ("ETag", "etag", "LastModified", "mtime", "created") if key in found), "")
        return Status(int(found["size"]), str(stamp))

    def _try(self, path: str, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except (FileNotFoundError, PermissionError) as error:
            raise UserError(f"{path}: cannot be read ({error}).") from error
        except Exception as error:  # every store has errors of its own
            raise Again(f"{type(error).__name__}: {error}"[:200]) from error


def _settings(scheme: str) -> dict[str, Any]:
    """Options of a file system: nothing is cached that may have changed, and no request waits for minutes."""
    if scheme == "memory":
        return {}
    seconds = {"connect_timeout": patience.TIMEOUT, "read_timeout": patience.TIMEOUT}
    once = {"config_kwargs": {**seconds, "retries": {"max_attempts": 0}}}
    return {"use_listings_cache": False, **(once if scheme in ("s3", "s3a") else {})}
