"""Notices that a machine is asked back, from servers on this machine that speak as the clouds' do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from marin.execution.fleet import Notices, NoticeSource
from marin.execution.running.notices import NoticeWatch, notice_of


class Metadata(BaseHTTPRequestHandler):
    """Answers from `answers` by path; the rest is 404. Without the cloud's header it is 403."""

    answers: dict[str, str]

    def do_PUT(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200, "a-token")

    def do_GET(self) -> None:
        known = self.headers["Metadata-Flavor"] == "Google" or self.headers["X-aws-ec2-metadata-token"] == "a-token"
        text = self.answers.get(self.path)
        self._answer(403 if not known else 404 if text is None else 200, text or "")

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What the metadata service of both clouds says."""
    said: dict[str, str] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Metadata,), {"answers": said}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("GCE_METADATA_HOST", address)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{address}/")
    yield said
    server.shutdown()
    server.server_close()


GCE = "/computeMetadata/v1/instance"


def test_google_says_that_a_machine_is_preempted_or_ended_for_maintenance(answers: dict[str, str]) -> None:
    notices = Notices(NoticeSource.GCE)
    answers |= {f"{GCE}/preempted": "FALSE", f"{GCE}/maintenance-event": "MIGRATE_ON_HOST_MAINTENANCE"}
    assert notice_of(notices) is None
    answers[f"{GCE}/maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    assert notice_of(notices) == "Google Cloud ends this machine for maintenance"
    answers[f"{GCE}/preempted"] = "TRUE"
    assert notice_of(notices) == "Google Cloud preempts this machine"


def test_aws_says_when_it_takes_a_spot_machine_back(answers: dict[str, str]) -> None:
    notices = Notices(NoticeSource.AWS)
    assert notice_of(notices) is None
    told = {"action": "terminate", "time": "2026-11-30T12:00:00Z"}
    answers["/latest/meta-data/spot/instance-action"] = json.dumps(told)
    assert notice_of(notices) == "AWS takes this spot machine back (terminate at 2026-11-30T12:00:00Z)"


def test_a_file_is_a_notice_and_its_first_line_the_reason(tmp_path: Path) -> None:
    notices = Notices(NoticeSource.FILE, file=str(tmp_path / "leave"))
    assert notice_of(notices) is None
    (tmp_path / "leave").write_text("rack 7 is rewired\nat noon\n")
    assert notice_of(notices) == "rack 7 is rewired"
    with pytest.raises(ValueError, match="they go together"):
        Notices(NoticeSource.GCE, file="leave")


def test_a_watch_tells_once_and_asks_nobody_unless_it_is_told_to(answers: dict[str, str], tmp_path: Path) -> None:
    told: list[str] = []
    heard = threading.Event()

    def hear(reason: str) -> None:
        told.append(reason)
        heard.set()

    notices = Notices(NoticeSource.FILE, file=str(tmp_path / "leave"), poll_seconds=0.02)
    with NoticeWatch(notices, hear), NoticeWatch(Notices(), hear):
        assert not heard.wait(0.1)
        (tmp_path / "leave").touch()
        assert heard.wait(5)
    assert told == [f"the file {tmp_path / 'leave'} is there"]


def test_a_service_that_does_not_answer_is_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    with pytest.raises(OSError):
        notice_of(Notices(NoticeSource.GCE))
