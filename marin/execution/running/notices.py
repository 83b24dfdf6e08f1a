"""Notices that a machine is asked back soon: from its cloud's metadata service, or a file. Off unless asked for.

Sources: Google Cloud, "Detect if a VM was preempted" (`instance/preempted` becomes TRUE, `instance/maintenance-event`
becomes TERMINATE_ON_HOST_MAINTENANCE); AWS, "Spot Instance interruption notices" (`spot/instance-action` answers 404
until there is one). Both clouds' own variables move the service elsewhere: GCE_METADATA_HOST,
AWS_EC2_METADATA_SERVICE_ENDPOINT.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from marin.execution.fleet import Notices, NoticeSource

ANSWER_SECONDS = 2.0
TOKEN_SECONDS = 300
SILENT_LOOKS = 12
"""Looks in a row without an answer, after which that is said once."""

logger = logging.getLogger(__name__)


def notice_of(notices: Notices, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why this machine is asked back, or None; raises OSError when the service does not answer."""
    if notices.source is NoticeSource.GCE:
        return _gce(environment)
    if notices.source is NoticeSource.AWS:
        return _aws(environment)
    if notices.source is NoticeSource.FILE and notices.file is not None:
        return _file(Path(notices.file))
    return None


def _gce(environment: Mapping[str, str]) -> str | None:
    root = f"http://{environment.get('GCE_METADATA_HOST', 'metadata.google.internal')}/computeMetadata/v1/instance"
    if _get(f"{root}/preempted", {"Metadata-Flavor": "Google"}).strip().upper() == "TRUE":
        return "Google Cloud preempts this machine"
    if _get(f"{root}/maintenance-event", {"Metadata-Flavor": "Google"}).strip() == "TERMINATE_ON_HOST_MAINTENANCE":
        return "Google Cloud ends this machine for maintenance"
    return None


def _aws(environment: Mapping[str, str]) -> str | None:
    root = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
    token = _get(f"{root}/latest/api/token", lifetime, method="PUT")
    try:
        body = _get(f"{root}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    action = json.loads(body)
    return f"AWS takes this spot machine back ({action.get('action', 'terminate')} at {action.get('time', 'once')})"


def _file(path: Path) -> str | None:
    try:
        first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except FileNotFoundError:
        return None
    return first or f"the file {path} is there"


def _get(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        return str(answer.read().decode())


class NoticeWatch:
    """Asks in a thread of its own, and calls `told(reason)` once when there is a notice. A `with` block bounds it."""

    def __init__(self, notices: Notices, told: Callable[[str], None]) -> None:
        self._notices = notices
        self._told = told
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="marin-notices", daemon=True)

    def __enter__(self) -> NoticeWatch:
        if self._notices.source is not NoticeSource.NONE:
            self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        silent = 0
        while True:
            try:
                reason = notice_of(self._notices)
                silent = 0
            except (OSError, ValueError) as error:
                reason = None
                silent += 1
                if silent == SILENT_LOOKS:
                    logger.warning("fleet.notices %s gives no answer here: %s", self._notices.source.value, error)
            if reason is not None:
                self._told(reason)
                return
            if self._stop.wait(self._notices.poll_seconds):
                return
