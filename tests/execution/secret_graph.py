"""Steps that use a secret, some of them carelessly."""

from __future__ import annotations

import hashlib
import logging
import sys
from dataclasses import dataclass

from marin.execution import Artifact, Fleet, Secret, current_run, step

VARIABLE = "MARIN_TEST_HUB_TOKEN"


@dataclass(frozen=True)
class Hub:
    """Where to fetch from, and with which token; two levels down."""

    tokens: dict[str, Secret]

    @property
    def token(self) -> str:
        """The value."""
        return self.tokens["hub"].value()


@dataclass(frozen=True, kw_only=True)
class Prints(Artifact):
    """What each process saw of the secret."""

    prints: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One shard or rank, and what it does with the secret."""

    number: int
    hub: Hub
    deed: str = "use"


def fingerprint(value: str) -> str:
    """A digest that shows that a process had the value."""
    return hashlib.sha256(value.encode()).hexdigest()[:12]


def deal_with(item: Item) -> str:
    """Say the secret in every way, and do what the item tells."""
    value = item.hub.token
    run = current_run()
    logging.getLogger(__name__).warning("the token is %s", value)
    print("printed:", value)
    print("printed as an error:", value, file=sys.stderr, flush=True)
    run.progress(item.number, 10, unit=f"files of {value}")
    if item.deed == "raise":
        try:
            raise PermissionError(f"401 for {value}")
        except PermissionError as error:
            raise RuntimeError(f"cannot fetch with {value!r}") from error
    if item.deed == "write":
        run.write_bytes("config.txt", f"token: {value}\n".encode())
    return value if item.deed == "return" else fingerprint(value)


@step("secret/body", version="1")
def body(hub: Hub, deed: str = "use") -> Prints:
    """In the step's own process."""
    return Prints(prints=(deal_with(Item(1, hub, deed)),))


@step("secret/keep", version="1")
def keep(hub: Hub) -> Prints:
    """Tries to return the secret itself."""
    return Prints(prints=(hub.tokens["hub"],))  # type: ignore[arg-type]


@step("secret/shards", version="1", fans_out=True)
def shards(hub: Hub, deed: str = "use") -> Prints:
    """In the processes of shards."""
    return Prints(prints=tuple(current_run().map(deal_with, [Item(n, hub, deed) for n in range(2)])))


@step("secret/gang", version="1", fans_out=True)
def gang(hub: Hub, deed: str = "use") -> Prints:
    """In the processes of ranks."""
    return Prints(prints=tuple(current_run().gang(deal_with, Item(0, hub, deed))))


@step("secret/all", version="1", inline=True)
def together(parts: tuple[Prints, ...]) -> Prints:
    """All of them; in the driver."""
    return Prints(prints=tuple(one for part in parts for one in part.prints))


def graph(deed: str = "use", variable: str = VARIABLE) -> Prints:
    """A body, two shards and two ranks that each do the deed."""
    hub = Hub({"hub": Secret(variable)})
    return together((body(hub, deed), shards(hub, deed), gang(hub, deed).on(Fleet(workers=2))))
