"""`Secret`: a value of configs that comes from the environment and is never written anywhere.

The driver reads the variables of all secrets among the arguments of the steps that will run, before the first of them
starts. The values travel to the workers in memory, as `SecretValues` beside a task, and with them the credentials of
the stores. `Secret.value()` gives the value inside a step's body, a shard function or a rank.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
import re
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin.execution.failures import StepError
from marin.execution.fields import RUNTIME, found_in
from marin.execution.plain_text import token_in
from marin.execution.redaction import SHORTEST, know, redacting_output

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

STORE_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CA_BUNDLE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_RESPONSE_CHECKSUM_VALIDATION",
    "AWS_ROLE_ARN",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT",
    "GOOGLE_CLOUD_PROJECT",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "STORAGE_EMULATOR_HOST",
)
"""Variables by which the clients of object stores find their servers and their credentials; and all of `FSSPEC_…`."""
FSSPEC = "FSSPEC_"

STORE_FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS")
"""Variables that name a file of the driver's machine, whose contents travel."""

SECRET_WORDS = frozenset({"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS"})
LARGEST = 64 << 10
"""Bytes of all values of a task. Ray keeps larger arguments in its object store, which may spill to disk."""


@dataclass(frozen=True, repr=False)
class Secret:
    """The value of an environment variable of the driver, such as an access token: `Secret("HF_TOKEN")`.

    Only the variable's name is kept, printed and pickled. Neither the name nor the value is part of an identity: where
    a credential comes from changes no result.
    """

    variable: str = dataclasses.field(metadata={RUNTIME: True})

    def __post_init__(self) -> None:
        if not isinstance(self.variable, str) or not VARIABLE.fullmatch(self.variable):
            raise ValueError(
                "Secret(…) takes the name of an environment variable such as 'HF_TOKEN', not the secret itself: "
                "letters, digits and '_'"
            )
        kind = token_in(self.variable)
        if kind is not None:
            raise ValueError(
                f"Secret(…) takes the name of an environment variable such as 'HF_TOKEN'; this one has the form of "
                f"{kind}. Export the value under a name, give Secret that name, and revoke what was in the code"
            )

    def __repr__(self) -> str:
        return f"Secret({self.variable!r})"

    def value(self) -> str:
        """The secret's value; works inside a step to whose arguments this secret belongs.

        Raises:
            StepError: elsewhere.
        """
        with _lock:
            values = _available.get(self.variable)
            if values:
                return values[-1]
        raise StepError(
            f"{self!r} has its value only inside a step that has it among its arguments; pass the Secret itself on, "
            "in the step's config or in the items of run.map"
        )


class SecretValues:
    """Secret values and the credentials of stores on their way to a worker. Lives in memory; prints names only."""

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """`values` of secrets by variable; `environment` is set around the work; `files` are contents by variable."""
        self.values = dict(values or {})
        self.environment = dict(environment or {})
        self.files = dict(files or {})

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(sorted({*self.values, *self.environment, *self.files}))})"

    def __bool__(self) -> bool:
        return bool(self.values or self.environment or self.files)

    def confidential(self) -> list[str]:
        """The values that must be masked."""
        found = list(self.values.values())
        for name, value in self.environment.items():
            found += [value] if looks_secret(name) else _password_of(value)
        for content in self.files.values():
            found += _confidential_of_file(content)
        return found

    def merged(self, other: SecretValues) -> SecretValues:
        """Both together; `other` counts where they differ."""
        return SecretValues(self.values | other.values, self.environment | other.environment, self.files | other.files)

    def check_size(self, what: str) -> None:
        """Raise `StepError` when the values are more than travel in memory alone."""
        size = sum(
            len(value.encode()) for part in (self.values, self.environment, self.files) for value in part.values()
        )
        if size > LARGEST:
            raise StepError(f"the secrets of {what} have {size} bytes; at most {LARGEST} can be sent to a worker")


def looks_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return not SECRET_WORDS.isdisjoint(name.upper().split("_"))


def _password_of(value: str) -> list[str]:
    """The password inside an address such as `http://user:password@proxy:3128`."""
    try:
        password = urllib.parse.urlsplit(value).password
    except ValueError:
        return []
    return [urllib.parse.unquote(password)] if password else []


def _confidential_of_file(content: str) -> list[str]:
    """The secret values in a file of credentials: JSON as Google's, or `name = value` lines as those of AWS."""
    try:
        body = json.loads(content)
    except ValueError:
        pairs = [line.partition("=") for line in content.splitlines()]
        return [value.strip() for name, _, value in pairs if looks_secret(name.strip())]
    names = body if isinstance(body, dict) else {}
    return [value for name, value in names.items() if looks_secret(name) and isinstance(value, str)]


# --- in the driver ---


def secrets_in(arguments: Mapping[str, Any]) -> list[tuple[str, Secret]]:
    """(field, secret) of every secret among a step's arguments."""
    return [(path, secret) for path, secret in found_in(arguments, Secret) if isinstance(secret, Secret)]


def secret_values(wanted: Iterable[tuple[str, Secret]], environment: Mapping[str, str]) -> dict[str, str]:
    """The values of secrets, by variable; from here on they are masked in all text of this process.

    Raises:
        StepError: variables are not set, or hold too little to be kept out of logs; names each with its field.
    """
    values: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for field, secret in wanted:
        value = environment.get(secret.variable)
        if value is None:
            wrong.setdefault(secret.variable, f"{field} needs the environment variable {secret.variable}: set it")
        elif len(value.strip()) < SHORTEST:
            wrong.setdefault(
                secret.variable,
                f"{field} needs the environment variable {secret.variable}, whose value has fewer than {SHORTEST} "
                "characters: too short to be a secret that can be kept out of logs",
            )
        else:
            values[secret.variable] = value
    if wrong:
        raise StepError("; ".join(wrong.values()))
    know(values.values())
    SecretValues(values).check_size("this run")
    return values


def store_credentials(environment: Mapping[str, str]) -> SecretValues:
    """What the stores' clients on a worker need of the driver's environment; its secrets are masked from here on."""
    wanted = [*STORE_VARIABLES, *sorted(name for name in environment if name.startswith(FSSPEC))]
    found = {name: environment[name] for name in wanted if environment.get(name)}
    files = {}
    for name in STORE_FILES:
        path = environment.get(name)
        if path:
            try:
                with open(os.path.expanduser(path), encoding="utf-8") as file:
                    files[name] = file.read()
            except (OSError, UnicodeDecodeError) as error:
                raise StepError(
                    f"{name} names the file {path!r}, which cannot be read ({error}); mend or unset it"
                ) from error
    credentials = SecretValues(environment=found, files=files)
    know(credentials.confidential())
    credentials.check_size("the stores")
    return credentials


# --- in a worker ---

_lock = threading.RLock()
_available: dict[str, list[str]] = {}


@contextlib.contextmanager
def available(secrets: SecretValues) -> Iterator[None]:
    """Make secrets available to the work of a block, and mask them in what this process logs and prints."""
    if not secrets:
        yield
        return
    know(secrets.confidential())
    with redacting_output(), _in_environment(secrets):
        with _lock:
            for name, value in secrets.values.items():
                _available.setdefault(name, []).append(value)
        try:
            yield
        finally:
            with _lock:
                for name, value in secrets.values.items():
                    _available[name].remove(value)


@contextlib.contextmanager
def _in_environment(secrets: SecretValues) -> Iterator[None]:
    """Set the credentials of stores for a block. Where they are set already, as in the driver, nothing is touched."""
    with contextlib.ExitStack() as stack:
        wanted = dict(secrets.environment)
        for name, content in secrets.files.items():
            if not _holds(os.environ.get(name), content):
                wanted[name] = stack.enter_context(_file_in_memory(name, content))
        changed = {name: os.environ.get(name) for name, value in wanted.items() if os.environ.get(name) != value}
        os.environ.update({name: wanted[name] for name in changed})
        if any(name.startswith(FSSPEC) for name in changed):
            stack.enter_context(_fsspec_settings())
        try:
            yield
        finally:
            for name, old in changed.items():
                if old is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = old


@contextlib.contextmanager
def _fsspec_settings() -> Iterator[None]:
    """fsspec reads its variables once, when it is imported: have it read them again for a block."""
    from fsspec.config import conf, set_conf_env

    before = copy.deepcopy(conf)
    set_conf_env(conf)
    try:
        yield
    finally:
        conf.clear()
        conf.update(before)


def _holds(path: str | None, content: str) -> bool:
    if path is None:
        return False
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read() == content
    except (OSError, UnicodeDecodeError):
        return False


@contextlib.contextmanager
def _file_in_memory(name: str, content: str) -> Iterator[str]:
    """The path of a file that lies on no disk, for clients that read their credentials from a file."""
    if not hasattr(os, "memfd_create"):
        raise StepError(
            f"{name} names a file of the driver, and this worker's system keeps no files in memory: "
            "put the file on the worker, or give credentials by environment variables"
        )
    descriptor = os.memfd_create(name)
    try:
        os.write(descriptor, content.encode())
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)
