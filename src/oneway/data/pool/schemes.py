"""Which reader of files an address needs, by its scheme: by path, over HTTP, or through fsspec."""

from __future__ import annotations

import re

from oneway.data.pool.files import Files, LocalFiles
from oneway.data.pool.http_files import HttpFiles
from oneway.data.pool.store_files import StoreFiles


def files_for(path: str) -> Files:
    """The reader for an address, or for a path on this machine."""
    scheme = scheme_of(path)
    if scheme is None:
        return LocalFiles()
    return HttpFiles() if scheme in ("http", "https") else StoreFiles(scheme)


def scheme_of(path: str) -> str | None:
    """The scheme of an address; None for a path on this machine."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", path)
    return found[1].lower() if found else None
