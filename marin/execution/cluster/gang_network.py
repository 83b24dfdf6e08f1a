"""What can be known to be wrong with a gang's network before torch waits for it: interfaces, and rank 0's reach."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping

from marin.execution.failures import StepError

KNOCK_SECONDS = 10.0
VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def interface_environment(interface: str | None, address: str) -> dict[str, str]:
    """The variables by which NCCL and gloo take an interface; gloo does not find loopback by itself."""
    name = interface or ("lo" if address.startswith("127.") else None)
    if name is None:
        return {}
    return {"GLOO_SOCKET_IFNAME": name} if interface is None else dict.fromkeys(VARIABLES, name)


def address_of(interface: str | None, default: str, environment: Mapping[str, str] = os.environ) -> str:
    """The address of this node for collectives: that of an interface, which must be up, or the default.

    The node's own NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME must name an interface that is up, too.

    Raises:
        StepError: names the host, the interface, and those that are there.
    """
    import psutil

    up = sorted(name for name, stats in psutil.net_if_stats().items() if stats.isup)
    host = socket.gethostname()
    if interface is None:
        for variable in VARIABLES:
            wanted = environment.get(variable, "")
            if wanted and not _matches(wanted, up):
                raise StepError(
                    f"{variable} on {host} is {wanted!r}, and no such interface is up there ({', '.join(up)}); mend "
                    "the node's environment, or set fleet.interface"
                )
        return default
    if interface not in up:
        raise StepError(
            f"fleet.interface is {interface!r}, and no such interface is up on {host} ({', '.join(up)}); name one of "
            "these, or leave it null"
        )
    for found in psutil.net_if_addrs()[interface]:
        if found.family is socket.AF_INET:
            return str(found.address)
    raise StepError(f"fleet.interface {interface!r} on {host} has no IPv4 address; name another, or leave it null")


def _matches(wanted: str, up: list[str]) -> bool:
    """NCCL's rules: `=` for exact names, `^` for all but these, otherwise beginnings of names, separated by commas."""
    if wanted.startswith("^"):
        return True
    exact = wanted.startswith("=")
    names = wanted.removeprefix("=").split(",")
    return any(one == name if exact else one.startswith(name) for one in up for name in names)


class Door:
    """A port of this process that takes connections until it is closed, to show that others reach it."""

    def __init__(self, address: str) -> None:
        self._socket = socket.create_server((address, 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._take, name="marin-door", daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._socket.close()

    def _take(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            visitor.close()


def knock(address: str, port: int) -> str:
    """Why no connection to a port can be opened from here, or an empty text."""
    try:
        with socket.create_connection((address, port), timeout=KNOCK_SECONDS):
            return ""
    except OSError as error:
        return f"{type(error).__name__}: {error}"
