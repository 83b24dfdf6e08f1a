"""Streams over servers in trouble."""

import gzip
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from marin.data.crawl.config import external_crawl
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.inputs.patient import PatientStream
from marin.execution import materialise
from marin.storage import StoreUnavailable
from marin.storage.patience import Patience
from tests.data.crawl.warcs import page_record, warcinfo

DATA = bytes(range(256)) * 400
QUICK = Patience(budget_seconds=0.3, first_seconds=0.001, longest_seconds=0.01)


class Breaking(io.BytesIO):
    """Breaks once after so many bytes of each opening."""

    def __init__(self, data, after, error):
        super().__init__(data)
        self.after, self.error, self.count = after, error, 0

    def read(self, size=-1):
        if self.count >= self.after:
            raise self.error
        data = super().read(min(size, 4096) if size > 0 else 4096)
        self.count += len(data)
        return data


def _read_all(stream):
    parts = []
    while part := stream.read(5000):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("slow"), BrokenPipeError("gone")])
def test_a_broken_connection_is_taken_up_where_it_broke(error):
    opened = []

    def open_file():
        opened.append(Breaking(DATA, 10_000, error))
        return opened[-1]

    with PatientStream(open_file, "x", len(DATA), QUICK) as stream:
        assert _read_all(stream) == DATA
    assert len(opened) >= 8
    assert all(stream.closed for stream in opened)


def test_an_end_before_the_known_size_is_a_broken_connection():
    lengths = iter([30_000, 70_000, len(DATA)])
    with PatientStream(lambda: io.BytesIO(DATA[: next(lengths)]), "x", len(DATA), QUICK) as stream:
        assert _read_all(stream) == DATA
    with pytest.raises(StoreUnavailable, match=r"x at byte 500 cannot be read .*ended after 500 of 102400"):
        _read_all(PatientStream(lambda: io.BytesIO(DATA[:500]), "x", len(DATA), QUICK))


def test_an_end_without_a_known_size_is_the_end():
    assert _read_all(PatientStream(lambda: io.BytesIO(DATA[:500]), "x", None, QUICK)) == DATA[:500]


def test_trouble_that_stays_is_said_with_the_place():
    opened = iter([4096, 0, *[0] * 1000])
    stream = PatientStream(lambda: Breaking(DATA, next(opened), ConnectionResetError("reset")), "x", None, QUICK)
    with pytest.raises(StoreUnavailable, match=r"x at byte 4096 cannot be read \(ConnectionResetError: reset"):
        _read_all(stream)


@pytest.mark.parametrize("error", [PermissionError("no"), FileNotFoundError("none"), ValueError("bad")])
def test_errors_that_stay_are_not_waited_for(error):
    def open_file():
        raise error

    with pytest.raises(type(error)):
        PatientStream(open_file, "x", None, Patience(budget_seconds=60))


def test_reading_on_goes_on_after_a_seek():
    stream = PatientStream(lambda: Breaking(DATA, 8000, ConnectionResetError("reset")), "x", len(DATA), QUICK)
    assert stream.seek(50_000) == 50_000
    assert _read_all(stream) == DATA[50_000:]
    assert stream.tell() == len(DATA)
    assert stream.seek(-1000, 2) == len(DATA) - 1000
    assert _read_all(stream) == DATA[-1000:]


def test_a_server_that_fails_now_and_then_costs_no_step_and_no_record(tmp_path):
    body = b"".join(gzip.compress(item) for item in [warcinfo(), *(page_record(f"page{n}") for n in range(30))])
    answers = []

    class Handler(BaseHTTPRequestHandler):
        def _head(self, status, length):
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()

        def do_HEAD(self):
            self._head(200, len(body))

        def do_GET(self):
            answers.append(503 if len(answers) % 2 else 206)
            if answers[-1] == 503:
                self._head(503, 0)
                return
            first, last = self.headers.get("Range", f"bytes=0-{len(body) - 1}").removeprefix("bytes=").split("-")
            part = body[int(first) : int(last or len(body)) + 1]
            self._head(206 if "Range" in self.headers else 200, len(part))
            self.wfile.write(part[: len(part) // 2] if len(answers) % 3 == 1 else part)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/web.warc.gz"
        crawl = fetch_crawl(external_crawl("web", [url], version="1"))
        documents = materialise(extract_pages(crawl), prefix=str(tmp_path))
    finally:
        server.shutdown()
        server.server_close()
    assert answers.count(503) >= 1
    assert documents.rows == 30
    assert documents.read_json("extraction.json")["flow"]["dropped"] == {"warcinfo": 1}
