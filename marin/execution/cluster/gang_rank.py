"""One rank of a gang: the actor in whose process the work runs, and which hears when it is to end."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.util import get_node_ip_address

from marin.execution.cluster.gang_network import Door, address_of, knock
from marin.execution.cluster.nodes import Standard, this_node
from marin.execution.cluster.streams import Message, messages_of
from marin.execution.fleet import Notices
from marin.execution.running.captured_log import captured_log
from marin.execution.running.context import run_rank
from marin.execution.running.inline import free_port
from marin.execution.running.notices import NoticeWatch
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.stopping import StopRequest
from marin.execution.running.tasks import RunSpec
from marin.execution.running.worker import Failure, failure_of
from marin.execution.secrets import SecretValues, available

NAMESPACE = "marin"
"""Ray's namespace of all ranks, in which the driver finds them by name."""


@dataclass(frozen=True)
class Place:
    """Where a rank runs: Ray's node, its host, the address and a free port for collectives, and its fast domain."""

    node: str
    host: str
    address: str
    port: int
    domain: str


@dataclass(frozen=True)
class Stop:
    """An order to end early. `final`: the run ends, and nothing is started again. `leaving`: the node goes away."""

    reason: str
    final: bool = False
    leaving: bool = False


class RankProcess:
    """One worker process."""

    def __init__(self) -> None:
        self._stop = StopRequest()
        self._order: Stop | None = None
        self._send: Callable[[Message], None] | None = None
        self._door: Door | None = None
        self._rays_own = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def prepare(self, spec: RunSpec, standard: Standard) -> Place | Failure:
        """Where this rank is, or why no rank can run here."""
        try:
            standard.check_here(spec)
            address = address_of(spec.fleet.interface, get_node_ip_address())
        except Exception as error:
            return failure_of(error)
        node = this_node()
        labels = ray.get_runtime_context().get_node_labels()
        domain = str(labels.get(spec.fleet.domain_label, node))
        return Place(node, socket.gethostname(), address, free_port(address), domain)

    def open_door(self, address: str) -> int:
        """Take connections, on the port that is returned, until the work begins."""
        self._door = Door(address)
        return self._door.port

    def knock(self, address: str, port: int) -> str:
        """Why rank 0's door cannot be reached from here, or an empty text."""
        return knock(address, port)

    def call(
        self, environment: dict[str, str], secrets: SecretValues, function: Callable[[Any], Any], payload: Any
    ) -> Any | Failure:
        """What a function returns here, outside of any run; an exception comes back as a `Failure`."""
        os.environ.update(environment)
        if self._door is not None:
            self._door.close()
        try:
            with available(secrets):
                return function(payload)
        except Exception as error:
            return failure_of(error)

    def run(
        self,
        environment: dict[str, str],
        spec: RunSpec,
        secrets: SecretValues,
        folder: str,
        entry: Callable[[Any], Any],
        payload: Any,
    ) -> Iterator[Message]:
        """Stream progress, then the log, then the outcome or the failure, after which nobody listens."""
        os.environ.update(environment)
        if self._door is not None:
            self._door.close()
        full = replace(spec, secrets=secrets)
        notices = spec.fleet.notices if environment.get("LOCAL_RANK") == "0" else Notices()

        def work(send: Callable[[Message], None]) -> None:
            self._send = send
            if self._order is not None:
                send(("stopping", self._order))

            def give_up(error: BaseException) -> None:
                send(("failed", failure_of(error)))

            with captured_log() as log, scratch_folder() as scratch, NoticeWatch(notices, self._leave):
                try:
                    outcome = run_rank(
                        full, folder, entry, payload, scratch, lambda p: send(("progress", p)), self._stop, give_up
                    )
                    last: Message = ("done", outcome)
                except BaseException as error:
                    last = ("failed", failure_of(error))
                send(("log", log.getvalue()))
                send(last)

        yield from messages_of(work)

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]  # Ray's own
    def answer(self) -> bool:
        """Show that this process lives, beside its work."""
        return True

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator]  # Ray's own
    def stop(self, order: Stop) -> None:
        """Ask the work to save and to end."""
        self._take(order)

    def _leave(self, reason: str) -> None:
        self._take(Stop(f"{reason} ({socket.gethostname()})", leaving=True))

    def _on_sigterm(self, number: int, frame: Any) -> None:
        """A working rank saves first; an idle one ends as Ray means it to."""
        if self._send is not None and self._order is None:
            self._take(Stop(f"a rank on {socket.gethostname()} received SIGTERM"))
        elif callable(self._rays_own):
            self._rays_own(number, frame)

    def _take(self, order: Stop) -> None:
        self._order = order
        self._stop.set(order.reason)
        if self._send is not None:
            self._send(("stopping", order))


Rank = ray.remote(max_restarts=0, max_task_retries=0, concurrency_groups={"control": 2})(RankProcess)
