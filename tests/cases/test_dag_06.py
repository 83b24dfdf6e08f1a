"""dag-06: configs with optional, union and nested fields survive the way to YAML and back; bad ones name the field."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from marin.cli.overrides import decode_config, encode_config, merge, read_config, to_yaml
from tests.execution.recipes import identity, whatever


class Norm(Enum):
    NFC = "nfc"
    NONE = "none"


@dataclass(frozen=True)
class Dense:
    width: int = 8


@dataclass(frozen=True)
class Moe:
    experts: int = 4
    top_k: int = 2


@dataclass(frozen=True)
class Settings:
    name: str = "a"
    model: Dense | Moe | None = None
    sizes: list[int] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    stops: list[str] | None = None
    span: tuple[int, int] = (0, 1)
    limit: int | float | None = None
    norm: Norm = Norm.NONE
    mode: Literal["fast", "safe"] = "safe"
    out: Path = Path("out")
    flag: bool = False


def load(text: str) -> Settings:
    """As `--config FILE` does it: the file's values over the defaults."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "settings.yaml")
        file.write_text(text)
        return decode_config(Settings, merge(Settings(), encode_config(Settings()), read_config(str(file))))


GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "enum": ("{norm: NFC, mode: fast, flag: true}", {"norm": Norm.NFC, "mode": "fast", "flag": True}),
    "floats": ('{name: "1e3", limit: 2.5}', {"name": "1e3", "limit": 2.5}),
    "lists": ("{sizes: [1, 2, 3], stops: [], span: [3, 4]}", {"sizes": [1, 2, 3], "stops": [], "span": (3, 4)}),
    "maps": ('{weights: {en: 0.5, "no": 0.25, "1": 0.25}}', {"weights": {"en": 0.5, "no": 0.25, "1": 0.25}}),
    "minimal": ("{name: a}", {"name": "a"}),
    "nulls": ("{model: null, stops: null, limit: null}", {"model": None, "stops": None, "limit": None}),
    "numbers": ('{name: "123", limit: 2}', {"name": "123", "limit": 2}),
    "words": (
        '{name: "null", stops: ["yes", "no", "null", "~"]}',
        {"name": "null", "stops": ["yes", "no", "null", "~"]},
    ),
    "dense": ("{model: {width: 4}}", {"model": Dense(4)}),
    "moe": ("{model: {experts: 8, top_k: 1}}", {"model": Moe(8, 1)}),
}
BAD = {
    "norm": "{norm: nfkc}",
    "mode": "{mode: turbo}",
    "both": "{model: {width: 4, experts: 8}}",
    "neither": "{model: {depth: 4}}",
    "flag": '{flag: "maybe"}',
    "span": "{span: [1, 2, 3]}",
    "szies": "{szies: [1]}",
    "sizes": "{sizes: 3}",
    "name": "{name: no}",
    "name ": "{name: null}",
    "name  ": "{name: 1.50}",
    "weights": "{weights: {no: .5}}",
    "stops": "{stops: [null]}",
    "limit": "{limit: true}",
    "sizes ": "{sizes: [true]}",
    "span ": "{span: [true, false]}",
    "model": "{model: 3}",
    "stands twice": "{limit: 1, limit: 2}",
}


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_good_config_loads_and_comes_back_equal_with_an_equal_identity(name: str) -> None:
    text, expected = GOOD[name]
    loaded = load(text)
    for key, value in expected.items():
        assert getattr(loaded, key) == value
        assert type(getattr(loaded, key)) is type(value)
    again = load(to_yaml(loaded))
    assert again == loaded
    assert identity(whatever(again)) == identity(whatever(loaded))


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_config_is_refused_in_one_line_naming_the_field(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load(BAD[name])
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert len(said.strip().splitlines()) == 1
    assert {"both": "model", "neither": "model"}.get(name, name).strip() in said


def test_a_table_for_another_alternative_of_a_union_takes_the_place_of_the_one_that_stood_there() -> None:
    with_moe = Settings(model=Moe())
    merged = merge(with_moe, encode_config(with_moe), {"model": {"width": 4}})
    assert decode_config(Settings, merged).model == Dense(4)
