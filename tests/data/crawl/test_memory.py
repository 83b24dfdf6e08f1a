"""Memory that reading takes, measured in processes of their own."""

import gzip
import subprocess
import sys

import pytest

READ = """
import re, sys
from marin.data.crawl.warc.pages import page_of
from marin.data.crawl.warc.records import FileReport, read_records

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1000

before, report, outcomes = peak(), FileReport(), []
for record in read_records(lambda: open(sys.argv[1], "rb"), report):
    outcome = page_of(record)
    outcomes.append(outcome if isinstance(outcome, str) else "page")
print(int(peak() - before), len(outcomes), outcomes.count("page"), outcomes.count("body_too_large"))
"""


def _record(size):
    body = b"<html><body>" + b"<p>some words of a text that repeats</p>\n" * (size // 42) + b"</body></html>"
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x.example/\r\nContent-Length: %d\r\n\r\n"
    return head % len(block) + block + b"\r\n\r\n"


def _read(path):
    printed = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    return [int(part) for part in printed.stdout.split()]


@pytest.mark.parametrize("packed", ["gzip a record", "gzip as a whole", "plain"])
def test_a_file_of_300_mb_is_read_in_a_tenth_of_it(tmp_path, packed):
    path = tmp_path / "large.warc.gz"
    item = _record(3_000_000)
    member = gzip.compress(item, 1)
    with gzip.open(path, "wb", compresslevel=1) if packed == "gzip as a whole" else path.open("wb") as stream:
        for _ in range(100):
            stream.write(member if packed == "gzip a record" else item)
    megabytes, records, pages, _ = _read(path)
    assert (records, pages) == (100, 100)
    assert megabytes < 40


@pytest.mark.parametrize("cut", [0, 2000])
def test_a_page_of_100_mb_takes_no_more_than_a_few_of_its_size_and_costs_itself_only(tmp_path, cut):
    path = tmp_path / "large.warc.gz"
    members = [gzip.compress(_record(size), 1) for size in (1000, 100_000_000, 1000)]
    if cut:
        members[1:] = [members[1][:-cut]]
    path.write_bytes(b"".join(members))
    megabytes, records, pages, too_large = _read(path)
    assert (records, pages, too_large) == ((2, 1, 0) if cut else (3, 2, 1))
    assert megabytes < 500
