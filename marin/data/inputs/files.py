"""Opening external inputs: one way for all, with patience for servers, unpacked, and named in every error."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from marin.data.inputs.packing import PackingError, unpacked
from marin.data.inputs.patient import PatientStream, patiently
from marin.execution import StepError
from marin.execution.running.external import Sighting, explained, see_file, without_password

_CONNECT_SECONDS = 15.0
_SILENCE_SECONDS = 60.0


def open_input(field: str, path: str, *, size: int | None = None) -> PatientStream:
    """A stream over the bytes of a file as they lie there, opened again where its connection breaks.

    Args:
        field: the setting that names the file, for messages.
        path: local path or URL of anything that fsspec knows.
        size: size of the file, when known: an earlier end is a broken connection too.

    Raises:
        StepError: there is no such file, or it may not be read.
        StoreUnavailable: its server is in trouble, at once or while it is read.
    """
    return explained(lambda: PatientStream(lambda: _open(path), without_password(path), size), path, field)


@contextlib.contextmanager
def open_unpacked(field: str, path: str, *, size: int | None = None) -> Iterator[io.BufferedReader]:
    """A buffered stream over the content of a file that may be packed; raises as `open_input` and `unpacked` do."""
    with open_input(field, path, size=size) as raw, unpacked(raw, f"{field}: {path!r}") as stream:
        yield stream


def read_input(field: str, path: str) -> bytes:
    """The whole content of a small file that may be packed.

    Raises:
        StepError: it cannot be read, or its packing is cut or damaged.
        StoreUnavailable: its server is in trouble.
    """

    def read() -> bytes:
        try:
            with open_unpacked(field, path) as stream:
                return stream.read()
        except PackingError as error:
            raise StepError(f"{field}: {path!r} is {error.damage}; get the file again") from error

    return explained(read, path, field)


def look_at(field: str, path: str) -> Sighting:
    """Size and fingerprints of one file, asked for again while its server is in trouble; raises as `see_file` does."""
    return patiently(lambda: see_file(field, path), lambda: f"{field}: {without_password(path)!r}")


def _open(path: str) -> BinaryIO:
    from fsspec.core import url_to_fs

    filesystem, stripped = url_to_fs(path, **_options(path))
    return cast(BinaryIO, filesystem.open(stripped, "rb"))


def _options(path: str) -> dict[str, Any]:
    """Over HTTP, a server that falls silent is noticed after a minute; by itself the client waits for five."""
    if not path.startswith(("http://", "https://")):
        return {}
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENCE_SECONDS)
    return {"client_kwargs": {"timeout": timeout}}
