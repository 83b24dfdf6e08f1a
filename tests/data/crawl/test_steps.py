"""The steps: fetching a crawl and extracting its pages."""

import gzip
import json
import random
import subprocess
import sys

import pytest

from marin.data.crawl.config import (
    CrawlConfig,
    EmbeddedSite,
    ExtractConfig,
    PackageVersion,
    embedded_crawl,
    embedded_crawls,
    external_crawl,
)
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.io import iterate_documents
from marin.execution import External, StepError, materialise
from marin.execution.running.inline import InlineBackend
from tests.data.crawl.warcs import html_page, http, page_record, record, warcinfo, write_warc


def _pages(tmp_path, *paths, store="store", **config):
    crawl = fetch_crawl(external_crawl("web", [str(path) for path in paths], version="1"))
    return materialise(extract_pages(crawl, ExtractConfig(**config)), prefix=str(tmp_path / store))


def test_the_embedded_crawl_becomes_documents(tmp_path):
    config = embedded_crawl("docs", ["warcio", "inscriptis"], max_pages=20)
    documents = materialise(extract_pages(fetch_crawl(config)), prefix=str(tmp_path))
    texts = {document.url: document for document in iterate_documents(documents)}
    assert documents.source == "docs"
    assert 15 <= documents.rows <= 20
    readme = texts["http://warcio.docs.invalid/readme.html"]
    assert "Streaming Library" in readme.text
    assert "Home" not in readme.text.splitlines()
    assert "All rights belong" not in readme.text
    metadata = json.loads(readme.metadata)
    assert metadata["extractor"] == "resiliparse"
    assert metadata["extractor_version"].startswith("2.")
    assert metadata["charset"] == "utf-8"
    flow = documents.read_json("extraction.json")["flow"]
    assert flow["read"] == flow["kept"] + sum(flow["dropped"].values())
    assert flow["dropped"]["robots"] == 2


def test_documents_do_not_depend_on_dates_record_ids_or_packaging(tmp_path):
    records = [warcinfo(), *(page_record(f"page{n}") for n in range(6))]
    one = write_warc(tmp_path / "one.warc.gz", records)
    later = [item.replace(b"2026-01-02", b"2027-03-04").replace(b"uuid:0000", b"uuid:1111") for item in records]
    other = write_warc(tmp_path / "other.warc.gz", later, per_record=False)
    ids = [
        [(d.id, d.text_hash) for d in iterate_documents(_pages(tmp_path, path, store=path.stem))]
        for path in (one, other)
    ]
    assert ids[0] == ids[1]
    assert len({id for id, _ in ids[0]}) == 6


def test_a_missing_warc_is_one_message_that_names_path_and_field(tmp_path):
    present = write_warc(tmp_path / "present.warc.gz", [page_record("here")])
    with pytest.raises(StepError) as raised:
        _pages(tmp_path, present, tmp_path / "missing.warc.gz")
    assert "missing.warc.gz" in str(raised.value)
    assert "warcs[1]" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_globs_and_list_files_stand_for_their_files(tmp_path):
    for name in ("b", "a"):
        write_warc(tmp_path / f"{name}.warc.gz", [page_record(f"{name}mark")])
    listing = tmp_path / "warc.paths.gz"
    listing.write_bytes(gzip.compress(b"b.warc.gz\na.warc.gz\n"))
    by_glob = [d.url for d in iterate_documents(_pages(tmp_path, tmp_path / "*.warc.gz", store="s1"))]
    by_list = [d.url for d in iterate_documents(_pages(tmp_path, listing, store="s2"))]
    assert by_glob == ["http://amark.example/", "http://bmark.example/"]
    assert by_list == list(reversed(by_glob))
    with pytest.raises(StepError, match=r"warcs\[0\]: nothing matches"):
        _pages(tmp_path, tmp_path / "*.nothing", store="s3")


def test_a_file_that_changed_after_the_crawl_step_is_refused(tmp_path):
    path = write_warc(tmp_path / "web.warc.gz", [page_record("first")])
    crawl = fetch_crawl(external_crawl("web", [str(path)], version="1"))
    materialise(crawl, prefix=str(tmp_path / "store"))
    write_warc(path, [page_record("first"), page_record("second")])
    with pytest.raises(StepError, match="new version"):
        materialise(extract_pages(crawl), prefix=str(tmp_path / "store"))


def test_a_change_that_keeps_the_size_is_refused_too(tmp_path):
    path = tmp_path / "web.warc"
    path.write_bytes(page_record("first"))
    crawl = fetch_crawl(external_crawl("web", [str(path)], version="1"))
    materialise(crawl, prefix=str(tmp_path / "store"))
    path.write_bytes(page_record("fiRst"))
    with pytest.raises(StepError, match=r"web\.warc had \d+ bytes, sample .*new version"):
        materialise(extract_pages(crawl), prefix=str(tmp_path / "store"))


def test_the_files_of_a_list_stand_for_one_content_too(tmp_path):
    path = write_warc(tmp_path / "a.warc.gz", [page_record("first")])
    (tmp_path / "few.paths").write_text("a.warc.gz\n")

    def crawl(source: str) -> None:
        config = external_crawl(source, [str(tmp_path / "few.paths")], version="1")
        materialise(fetch_crawl(config), prefix=str(tmp_path / "store"))

    crawl("web")
    crawl("other")
    write_warc(path, [page_record("first"), page_record("second")])
    with pytest.raises(StepError, match=r"not what this version stood for .*a\.warc\.gz had"):
        crawl("third")


def test_a_crawl_without_any_document_is_an_error_with_its_counts(tmp_path):
    path = write_warc(tmp_path / "web.warc.gz", [warcinfo(), record(http(b"x", "Content-Type: text/plain"))])
    with pytest.raises(StepError, match=r"no document came out of the 2 records.*not_html 1, warcinfo 1"):
        _pages(tmp_path, path)


def test_an_empty_file_is_a_valid_crawl_without_documents(tmp_path):
    path = tmp_path / "empty.warc.gz"
    path.write_bytes(b"")
    documents = _pages(tmp_path, path)
    assert (documents.rows, documents.shards) == (0, ())
    assert documents.read_json("extraction.json")["file_flow"] == {
        "unit": "WARC files",
        "read": 1,
        "kept": 0,
        "dropped": {"without_records": 1},
    }


def test_the_record_says_how_many_files_had_no_records(tmp_path):
    (tmp_path / "a.warc.gz").write_bytes(b"")
    (tmp_path / "b.warc.gz").write_bytes(gzip.compress(b""))
    write_warc(tmp_path / "c.warc.gz", [page_record("here")])
    documents = _pages(tmp_path, tmp_path / "*.warc.gz")
    (record_file,) = (tmp_path / "store" / "_steps").glob("documents.pages-*.json")
    flows = {flow["unit"]: flow for flow in json.loads(record_file.read_text())["flows"]}
    assert flows["WARC files"]["dropped"] == {"without_records": 2}
    assert (documents.rows, flows["records"]["read"]) == (1, 1)


def test_a_damaged_member_costs_one_record_and_many_fail_the_step(tmp_path):
    members = [gzip.compress(page_record(f"page{n}")) for n in range(40)]
    broken = [member[:40] + b"\xff" * 40 + member[80:] for member in members]
    path = tmp_path / "web.warc.gz"
    path.write_bytes(b"".join([*members[:20], broken[20], *members[21:]]))
    documents = _pages(tmp_path, path)
    report = documents.read_json("extraction.json")
    assert report["flow"] == {"unit": "records", "read": 40, "kept": 39, "dropped": {"damaged": 1}}
    assert report["files"][0]["damaged_offsets"] == [sum(map(len, members[:20]))]
    with pytest.raises(StepError, match="damaged"):
        _pages(tmp_path, path, store="strict", strict=True)

    path = tmp_path / "bad.warc.gz"
    path.write_bytes(b"".join(member for pair in zip(members, broken, strict=True) for member in pair))
    with pytest.raises(StepError, match="max_damaged"):
        _pages(tmp_path, path, store="bad")


def test_pages_that_are_no_text_have_their_reasons(tmp_path):
    pages = [
        http(html_page("goodmark").encode()),
        http(b"<html><body><script>only code</script></body></html>"),
        http(b"<html><body><p>" + b"some\x01 \x02words " * 200 + b"</p></body></html>"),
        http(b"<html><body><p>" + b"big " * 100_000 + b"</p></body></html>"),
    ]
    path = write_warc(tmp_path / "web.warc.gz", [record(page, uri=f"http://x/{n}") for n, page in enumerate(pages)])
    documents = _pages(tmp_path, path, max_page_bytes=100_000)
    dropped = documents.read_json("extraction.json")["flow"]["dropped"]
    assert dropped == {"empty_text": 1, "binary": 1, "page_too_large": 1}


def test_a_record_without_an_address_or_date_is_kept_under_its_place(tmp_path):
    bare = page_record("bare").replace(b"WARC-Target-URI: http://bare.example/\r\n", b"")
    bare = bare.replace(b"WARC-Date: 2026-01-02T03:04:05Z\r\n", b"")
    path = write_warc(tmp_path / "web.warc.gz", [bare, bare])
    documents = list(iterate_documents(_pages(tmp_path, path)))
    assert [document.url for document in documents] == [None, None]
    assert len({document.id for document in documents}) == 2
    assert json.loads(documents[0].metadata)["date"] is None


def _wet(text, uri="http://site.example/wet"):
    return record(text, kind="conversion", uri=uri, content_type="text/plain")


def test_the_texts_of_a_wet_file_are_documents_as_they_stand(tmp_path):
    texts = ["Erste Zeile über Häfen.\nZweite Zeile.\n", "港务长写道。\n", " \n"]
    records = [warcinfo(), *(_wet(text.encode(), f"http://site.example/{n}") for n, text in enumerate(texts))]
    records.append(record(b"{}", kind="conversion", content_type="application/json"))
    documents = _pages(tmp_path, write_warc(tmp_path / "web.warc.wet.gz", [*records, page_record("amidst")]))
    by_url = {document.url: document for document in iterate_documents(documents)}
    assert [by_url[f"http://site.example/{n}"].text for n in (0, 1)] == texts[:2]
    metadata = json.loads(by_url["http://site.example/0"].metadata)
    assert (metadata["extractor"], metadata["extractor_version"], metadata["charset"]) == ("archive", "3", "utf-8")
    assert "amidst paragraph 5" in by_url["http://amidst.example/"].text
    assert documents.read_json("extraction.json")["flow"] == {
        "unit": "records",
        "read": 6,
        "kept": 3,
        "dropped": {"conversion": 1, "empty_payload": 1, "warcinfo": 1},
    }


def test_the_same_files_in_another_order_give_the_same_documents(tmp_path):
    for name in ("a", "b", "c"):
        write_warc(tmp_path / f"{name}.warc.gz", [page_record(f"{name}{n}") for n in range(4)])
    orders = ["abc", "cab"]
    found = [_pages(tmp_path, *(tmp_path / f"{name}.warc.gz" for name in order), store=order) for order in orders]
    documents = [sorted(iterate_documents(one), key=lambda document: document.id) for one in found]
    assert documents[0] == documents[1]
    assert len(documents[0]) == 12


def test_a_second_extraction_writes_the_same_bytes(tmp_path):
    path = write_warc(tmp_path / "web.warc.gz", [page_record(f"page{n}") for n in range(30)])
    digests = [
        [(file.name, file.sha256) for file in _pages(tmp_path, path, store=store)._bound().record.files]
        for store in ("one", "two")
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("packed", ["gzip a record", "plain"])
def test_a_large_file_is_read_in_parts_with_the_same_documents(tmp_path, monkeypatch, packed):
    records = [warcinfo(), *(page_record(f"page{n}", paragraphs=1 + n % 7) for n in range(60))]
    path = tmp_path / "web.warc"
    path.write_bytes(b"".join(records if packed == "plain" else [gzip.compress(item, mtime=0) for item in records]))
    whole = _pages(tmp_path, path, store="whole")
    monkeypatch.setattr("marin.data.crawl.extraction.bundles.LEAST_BYTES", path.stat().st_size // 9)
    monkeypatch.setattr("marin.data.crawl.extraction.bundles._TASKS", 100)
    parts = _pages(tmp_path, path, store="parts")
    assert len(whole.shards) == 1
    assert len(parts.shards) >= 5
    assert list(iterate_documents(parts)) == list(iterate_documents(whole))
    reports = [one.read_json("extraction.json") for one in (whole, parts)]
    assert reports[0] == reports[1]


def test_trafilatura_is_an_option_and_is_recorded(tmp_path):
    path = write_warc(tmp_path / "web.warc.gz", [page_record("mark", paragraphs=12)])
    (document,) = iterate_documents(_pages(tmp_path, path, extractor="trafilatura"))
    assert "mark paragraph 11" in document.text
    metadata = json.loads(document.metadata)
    assert (metadata["extractor"], metadata["extractor_version"].split(".")[0]) == ("trafilatura", "1")


# --- configs ---


def test_another_installed_version_is_refused_when_the_step_runs(tmp_path):
    site = EmbeddedSite(packages=(PackageVersion("warcio", "0.0.1"),), python="3.11")
    with pytest.raises(StepError, match=r"warcio 0\.0\.1, but .* is installed"):
        materialise(fetch_crawl(CrawlConfig(source="docs", embedded=site)), prefix=str(tmp_path))


def test_the_default_crawl_is_two_sources_with_every_version_in_them():
    crawls = embedded_crawls(max_pages=2000)
    assert [crawl.source for crawl in crawls] == ["stdlib", "packages"]
    assert sum(crawl.embedded.max_pages for crawl in crawls) == 2000
    assert sum(len(crawl.embedded.packages) for crawl in crawls) == 31
    assert all(package.version for crawl in crawls for package in crawl.embedded.packages)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: CrawlConfig(source="web"), ("neither", "embedded", "warcs")),
        (lambda: CrawlConfig(source="Web site", warcs=(External("a", "1"),)), ("crawl.source", "'Web site'")),
        (lambda: CrawlConfig(source="web", warcs=(External("", "1"),)), ("empty path",)),
        (lambda: embedded_crawl("web", ["no-such-package"]), ("no-such-package", "not installed")),
        (lambda: embedded_crawl("web", []), ("embedded.packages", "empty")),
        (lambda: embedded_crawl("web", ["warcio"], max_pages=0), ("embedded.max_pages", "0")),
        (lambda: ExtractConfig(extractor="regex"), ("extract.extractor", "'regex'", "resiliparse")),
        (lambda: ExtractConfig(page_seconds=float("nan")), ("extract.page_seconds", "nan")),
        (lambda: ExtractConfig(max_damaged=2.0), ("extract.max_damaged", "2.0")),
    ],
)
def test_a_wrong_config_names_field_and_value(make, parts):
    with pytest.raises(ValueError) as raised:
        make()
    assert all(part in str(raised.value) for part in parts)


def test_an_external_file_is_known_by_its_version_and_name_and_not_by_its_place():
    crawls = [external_crawl("web", [path], version="2026-30") for path in ("/here/x.warc.gz", "s3://there/x.warc.gz")]
    assert [crawl.warcs[0].version for crawl in crawls] == ["2026-30/x.warc.gz"] * 2
    assert external_crawl("web", ["/here/y.warc.gz"], version="2026-30").warcs[0].version == "2026-30/y.warc.gz"


def test_planning_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from marin.data.crawl.config import embedded_crawls\n"
        "from marin.data.crawl.steps import extract_pages, fetch_crawl\n"
        "[extract_pages(fetch_crawl(crawl)) for crawl in embedded_crawls()]\n"
        "heavy = 'torch ray lm_eval datatrove transformers gcsfs s3fs pyarrow numpy tokenizers scipy lxml'.split()\n"
        "print(sorted(set(heavy) & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_are_done_in_another_order_give_the_same_bytes(tmp_path, monkeypatch, seed):
    records = [warcinfo(), *(page_record(f"page{n}", paragraphs=1 + n % 7) for n in range(60))]
    path = write_warc(tmp_path / "web.warc.gz", records)
    monkeypatch.setattr("marin.data.crawl.extraction.bundles.LEAST_BYTES", path.stat().st_size // 9)
    monkeypatch.setattr("marin.data.crawl.extraction.bundles._TASKS", 100)

    def digests(store):
        pages = _pages(tmp_path, path, store=store)
        assert len(pages.shards) >= 5
        return [(file.name, file.sha256) for file in pages._bound().record.files]

    in_order = digests("one")
    in_turn = InlineBackend.map

    def shuffled(self, spec, tasks):
        return in_turn(self, spec, random.Random(seed).sample(list(tasks), len(tasks)))

    monkeypatch.setattr(InlineBackend, "map", shuffled)
    assert digests("other") == in_order
