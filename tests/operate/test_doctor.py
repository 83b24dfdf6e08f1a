"""The doctor: each trouble is found, and named with its way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from marin.execution.cluster import token as cluster_token
from marin.operate import Finding, Level, doctor, render, worst
from marin.operate.doctor import check_cluster, check_store, split_address
from marin.operate.machine import GB, check_disk, check_shared_memory, grade
from marin.operate.packages import (
    check_contested,
    check_couplings,
    check_python,
    check_requirements,
    module_providers,
)


def test_every_line_says_how_it_went_and_every_trouble_has_a_way_out(tmp_path: Path) -> None:
    findings = doctor(str(tmp_path))
    subjects = [finding.subject for finding in findings]
    assert {"python", "packages", "store", "disk", "memory", "scratch", "ray"} <= set(subjects)
    for line, finding in zip(render(findings).splitlines(), findings, strict=True):
        assert line.split(maxsplit=1)[0] in ("ok", "warn", "fail")
        assert finding.level is Level.ok or finding.way_out


def test_the_doctor_leaves_nothing_in_a_store(tmp_path: Path) -> None:
    doctor(str(tmp_path / "prefix"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "prefix").mkdir()
    doctor(str(tmp_path / "prefix"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_trouble_without_a_way_out_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="way_out"):
        Finding("disk", Level.warn, "full")


def test_the_worst_level_counts() -> None:
    ok = Finding("a", Level.ok, "")
    warn = Finding("b", Level.warn, "", "do")
    assert worst([]) is Level.ok
    assert worst([ok, warn, ok]) is Level.warn
    assert worst([warn, Finding("c", Level.fail, "", "do")]) is Level.fail


def test_an_old_python_fails() -> None:
    assert check_python((3, 10, 9)).level is Level.fail
    assert check_python((3, 11, 0)).level is Level.ok


def test_missing_and_disagreeing_packages_are_each_named() -> None:
    versions = {"torch": "2.13.0+cpu", "s3fs": "2026.9.0", "ray": "2.61.0"}
    lines = ["torch~=2.13.0", "s3fs==2026.9.0", "ray[default]==2.60.0", "rich>=14", 'pytest>=9; extra == "test"']
    findings = check_requirements(lines, versions.get)
    assert all(finding.level is Level.fail for finding in findings)
    assert [finding.detail.split()[0] for finding in findings] == ["ray", "rich"]


def test_requirements_that_hold_are_counted() -> None:
    (finding,) = check_requirements(["torch~=2.13.0"], {"torch": "2.13.0+cpu"}.get)
    assert finding.level is Level.ok
    assert "1 requirements hold" in finding.detail


def test_fsspec_and_s3fs_must_be_a_pair() -> None:
    assert check_couplings({"fsspec": "2026.9.0", "s3fs": "2026.9.0"}.get) == []
    (finding,) = check_couplings({"fsspec": "2026.9.0", "s3fs": "2026.8.0"}.get)
    assert finding.level is Level.fail
    assert "2026.8.0" in finding.detail


def test_two_packages_with_one_module_are_found() -> None:
    assert check_contested({"fasttext": ["fasttext-predict"]}) == []
    (finding,) = check_contested({"fasttext": ["fasttext-predict", "fasttext-numpy2-wheel"]})
    assert finding.level is Level.fail
    assert "fasttext-numpy2-wheel and fasttext-predict" in finding.detail


def test_the_provider_of_a_contested_module_is_found_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "fasttext_other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fasttext-other\nVersion: 1.0\n")
    (info / "RECORD").write_text("fasttext/__init__.py,,\nfasttext_other-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "fasttext-other" in module_providers()["fasttext"]


def test_free_space_is_graded_by_its_two_limits() -> None:
    levels = [grade("disk", free * GB, (2, 10), "free", "free some").level for free in (1.9, 2.1, 10.1)]
    assert levels == [Level.fail, Level.warn, Level.ok]


def test_a_prefix_that_does_not_exist_yet_has_the_disk_of_its_parent(tmp_path: Path) -> None:
    assert "GB free" in check_disk(tmp_path / "not" / "yet").detail


def test_little_shared_memory_is_never_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    (finding,) = check_shared_memory(tmp_path)
    assert finding.level is Level.warn
    assert check_shared_memory(tmp_path / "none") == []


def test_a_good_store_passes_its_self_test(tmp_path: Path) -> None:
    assert check_store(str(tmp_path)).level is Level.ok
    fresh = check_store(str(tmp_path / "a" / "b"))
    assert (fresh.level, "does not exist yet" in fresh.detail) == (Level.ok, True)


def test_a_prefix_below_a_file_fails_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = check_store(str(tmp_path / "file" / "prefix"))
    assert finding.level is Level.fail
    assert str(tmp_path / "file" / "prefix") in finding.detail


def test_an_unknown_scheme_fails_in_words() -> None:
    finding = check_store("nosuch://bucket/prefix")
    assert finding.level is Level.fail
    assert "nosuch" in finding.detail


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", ("10.0.0.1", 6379)),
        ("10.0.0.1:6380", ("10.0.0.1", 6380)),
        ("ray://head:10001", ("head", 10001)),
        ("[::1]:6379", ("::1", 6379)),
        ("http://127.0.0.1:8265/", ("127.0.0.1", 8265)),
    ],
)
def test_cluster_addresses_are_read(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


def test_only_the_head_of_a_cluster_will_do_for_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_token, "ASK_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        finding = check_cluster(address)
        assert finding.level is Level.fail
        assert f"something listens at {address}, and it is no head of a Ray cluster" in finding.detail
    finding = check_cluster(address)
    assert finding.level is Level.fail
    assert f"nothing answers at {address}" in finding.detail
    assert check_cluster(None).level is Level.ok


def test_looking_at_a_machine_or_a_prefix_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys; from marin.operate import doctor; import marin.browse.app; "
        f"doctor({str(tmp_path)!r}); "
        "heavy = {'torch', 'ray', 'lm_eval', 'datatrove', 'transformers', 'gcsfs', 's3fs'} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
