"""What is printed of an artifact that has no words of its own."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact


@dataclass(frozen=True)
class Piece:
    """A part of a result."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Whole(Artifact):
    """A result with a long list."""

    title: str
    pieces: tuple[Piece, ...]
    sizes: dict[str, int]


def test_of_a_long_list_its_length_is_printed_and_of_a_short_one_all() -> None:
    whole = Whole(title="a", pieces=tuple(Piece(str(n)) for n in range(9)), sizes={"x": 1})
    assert whole.present({"lies in": "there"}).splitlines() == [
        "title: 'a'",
        "pieces: 9 × Piece",
        "sizes: {'x': 1}",
        "lies in: there",
    ]
