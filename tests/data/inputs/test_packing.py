"""Unpacking: every packing in one or several parts, and no cut that is taken for an end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable

import pytest
import zstandard

from marin.data.inputs.packing import PackingError, unpacked
from marin.execution import StepError

DATA = b"".join(b"line %d of a text that is long enough\n" % number for number in range(50_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def lines(data: bytes) -> tuple[list[bytes], str | None]:
    found: list[bytes] = []
    try:
        with unpacked(_raw(data), "x") as stream:
            found.extend(stream)
    except PackingError as error:
        return found, error.damage
    return found, None


def _raw(data: bytes) -> io.RawIOBase:
    class Raw(io.RawIOBase):
        """Gives few bytes at a time, as a network does."""

        at = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            part = data[self.at : self.at + min(len(buffer), 5000)]
            buffer[: len(part)] = part
            self.at += len(part)
            return len(part)

    return Raw()


EXPECTED = DATA.splitlines(keepends=True)


@pytest.mark.parametrize("packing", [*PACK, "none"])
@pytest.mark.parametrize("parts", [1, 3])
def test_content_is_the_same_in_every_packing_of_one_or_several_parts(packing: str, parts: int) -> None:
    size = len(DATA) // parts + 1
    pieces = [DATA[start : start + size] for start in range(0, len(DATA), size)]
    assert lines(b"".join(map(PACK.get(packing, bytes), pieces))) == (EXPECTED, None)


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("cut", [1, 5, 1000])
def test_a_cut_is_said_and_what_lies_before_it_is_read(packing: str, cut: int) -> None:
    found, damage = lines(PACK[packing](DATA)[:-cut])
    assert damage == "truncated"
    assert found == EXPECTED[: len(found)]
    if packing == "gzip":
        # Nothing but the last blocks is missing.
        assert len(found) > (0.99 if cut < 100 else 0.9) * len(EXPECTED) - 1


@pytest.mark.parametrize("packing", PACK)
def test_a_cut_in_the_second_part_costs_nothing_of_the_first(packing: str) -> None:
    found, damage = lines(PACK[packing](DATA) + PACK[packing](DATA)[:-20])
    assert damage == "truncated"
    assert found[: len(EXPECTED)] == EXPECTED


@pytest.mark.parametrize("packing", PACK)
def test_damage_is_said(packing: str) -> None:
    data = bytearray(PACK[packing](DATA))
    middle = len(data) // 2
    data[middle : middle + 40] = bytes(byte ^ 0xFF for byte in data[middle : middle + 40])
    found, damage = lines(bytes(data))
    assert damage in ("damaged", "truncated")
    assert len(found) < len(EXPECTED)


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "zstd"])
def test_bytes_behind_the_end_are_damage_and_cost_nothing(packing: str) -> None:
    assert lines(PACK[packing](DATA) + b"something else") == (EXPECTED, "damaged")


@pytest.mark.parametrize("text", [b"", b"B", b"BZh is a word", b"\x1f", b"PK", b"(\xb5"])
def test_what_is_not_packed_is_left_as_it_is(text: bytes) -> None:
    assert lines(text) == ([text] if text else [], None)


def test_a_zip_archive_is_refused_by_name() -> None:
    with pytest.raises(StepError, match="books is a zip archive"):
        unpacked(_raw(b"PK\x03\x04 and more"), "books")


def test_a_zstd_bomb_is_unpacked_a_little_at_a_time() -> None:
    import tracemalloc

    packed = zstandard.ZstdCompressor().compress(b"\0" * 400_000_000)
    tracemalloc.start()
    with unpacked(_raw(packed), "x") as stream:
        assert len(stream.read(1000)) == 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("place", [0, 40])
def test_damage_behind_the_first_part_is_no_end(packing: str, place: int) -> None:
    first, second = (PACK[packing](part) for part in (DATA[:4000], DATA[4000:]))
    broken = second[:place] + bytes(byte ^ 0x55 for byte in second[place : place + 12]) + second[place + 12 :]
    found, damage = lines(first + broken)
    assert damage == "damaged"
    assert b"".join(found)[:3900] == DATA[:3900]


@pytest.mark.parametrize("packing", ["gzip", "bzip2", "xz"])
def test_zeros_behind_the_content_are_padding(packing: str) -> None:
    assert lines(PACK[packing](DATA[:4000]) + bytes(512)) == (DATA[:4000].splitlines(keepends=True), None)
