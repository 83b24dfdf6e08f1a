"""Results survive the way into a record and back."""

from __future__ import annotations

import enum
import math
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from marin.execution import Artifact, StepError, current_run, materialise, step
from marin.execution.codec import decode, encode


class Split(enum.Enum):
    train = "train-split"
    validation = "validation-split"


@dataclass(frozen=True)
class Shard:
    name: str
    rows: int
    share: float = 0.0


@dataclass(frozen=True)
class Other:
    path: str


@dataclass(frozen=True, kw_only=True)
class Everything(Artifact):
    text: str
    count: int
    share: float
    flag: bool
    nothing: str | None
    maybe: float | None
    shards: tuple[Shard, ...]
    pair: tuple[int, str]
    listed: list[float]
    by_name: dict[str, Shard]
    by_number: dict[int, float]
    split: Split
    splits: tuple[Split, ...]
    mode: Literal["fast", "safe"]
    either: Shard | Other
    nested: dict[str, tuple[Shard, ...]]
    loose: dict[str, Any]


EVERYTHING = Everything(
    text='"quoted"\n日本 \x00',
    count=2**80,
    share=0.1,
    flag=True,
    nothing=None,
    maybe=2.0,
    shards=(Shard("a", 1), Shard("b", 2, math.inf)),
    pair=(1, "x"),
    listed=[1.0, -0.5, -math.inf],
    by_name={"z": Shard("c", 3)},
    by_number={10: 0.5, 2: 0.25},
    split=Split.validation,
    splits=(Split.train, Split.validation),
    mode="safe",
    either=Other("here"),
    nested={"k": (Shard("d", 4),)},
    loose={"list": [1, "two", None, {"three": 3.5}]},
)


@dataclass(frozen=True, kw_only=True)
class Leaf(Artifact):
    value: int


@dataclass(frozen=True, kw_only=True)
class Holder(Artifact):
    one: Leaf
    maybe: Leaf | None
    many: tuple[Leaf, ...]
    by_name: dict[str, Leaf]


@step("codec/everything", version="1", inline=True)
def everything() -> Everything:
    return EVERYTHING


@step("codec/leaf", version="1", inline=True)
def leaf(value: int) -> Leaf:
    current_run().write_json("value.json", {"value": value})
    return Leaf(value=value)


@step("codec/holder", version="1", inline=True)
def holder(one: Leaf, many: tuple[Leaf, ...]) -> Holder:
    return Holder(one=one, maybe=many[0], many=many, by_name={str(leaf.value): leaf for leaf in many})


@step("codec/by_hand", version="1", inline=True)
def by_hand() -> Holder:
    return Holder(one=Leaf(value=1), maybe=None, many=(), by_name={})


def load_nothing(key: str, kind: type[Artifact]) -> Artifact:
    raise AssertionError(key)


def test_every_kind_of_field_comes_back_equal(tmp_path: Path) -> None:
    first = materialise(everything(), str(tmp_path))
    again = materialise(everything(), str(tmp_path))
    assert first == again == EVERYTHING
    assert type(again) is Everything
    assert again.split is Split.validation
    assert isinstance(again.shards[0], Shard)
    assert list(again.by_number) == [10, 2]


def test_nan_comes_back_as_nan_with_and_without_an_annotation() -> None:
    for annotation in (float, float | None, Any):
        assert math.isnan(decode(encode(math.nan), annotation, load_nothing))
    loose = decode(encode({"loss": [1.0, math.nan]}), dict, load_nothing)
    assert math.isnan(loose["loss"][1])
    assert decode(encode({"loss": -math.inf}), dict[str, Any], load_nothing) == {"loss": -math.inf}


def test_numpy_scalars_become_numbers() -> None:
    assert encode({"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)}) == {"a": 3, "b": 0.5, "c": True}


def test_a_whole_number_in_a_float_field_comes_back_as_a_float() -> None:
    assert isinstance(decode(encode(1), float, load_nothing), float)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [0, object()]}, r"result\.a\[1\] is a object"),
        ({"a": b"bytes"}, r"result\.a is a bytes"),
        ({"a": {1, 2}}, r"result\.a is a set"),
        ({"a": {(1, 2): 3}}, r"result\.a has the key \(1, 2\)"),
        ({"a": {Split.train: 3}}, r"result\.a has the key"),
        ({"a": np.zeros(2)}, r"result\.a is a ndarray"),
        ({"a": Path("x")}, r"result\.a is a PosixPath"),
    ],
)
def test_what_a_record_cannot_hold_is_refused_naming_its_place(value: Any, where: str) -> None:
    with pytest.raises(StepError, match=where):
        encode(value)


def test_artifacts_are_kept_by_reference_and_come_back_bound(tmp_path: Path) -> None:
    target = holder(leaf(1), (leaf(2), leaf(3).label("three")))
    materialise(target, str(tmp_path))
    found: Holder = materialise(target, str(tmp_path))
    assert (found.one.value, [one.value for one in found.many]) == (1, [2, 3])
    assert found.maybe is not None
    assert found.by_name["3"].read_json("value.json") == {"value": 3}
    assert found.maybe.identity == found.many[0].identity != found.one.identity
    record = next(tmp_path.glob("_steps/codec.holder-*.json")).read_text()
    assert '"$artifact": "_steps/codec.leaf-' in record
    assert '"value": 2' not in record


def test_an_artifact_made_by_hand_cannot_stand_in_a_result(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"result\.one is a Leaf that no step has made"):
        materialise(by_hand(), str(tmp_path))


def test_materialised_artifacts_pickle(tmp_path: Path) -> None:
    found = materialise(holder(leaf(1), (leaf(2),)), str(tmp_path))
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.identity == found.identity
    assert again.many[0].read_json("value.json") == {"value": 2}


def test_a_record_of_another_shape_of_the_class_says_what_to_do(tmp_path: Path) -> None:
    materialise(leaf(1), str(tmp_path))
    record = next(tmp_path.glob("_steps/*.json"))
    record.write_text(record.read_text().replace('"result": {"value"', '"result": {"amount"'))
    with pytest.raises(StepError, match=r"codec/leaf-.* does not fit Leaf.*bump the version of codec/leaf"):
        materialise(leaf(1), str(tmp_path))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    materialise(leaf(1), str(tmp_path))
    record = next(tmp_path.glob("_steps/*.json"))
    record.write_text(record.read_text()[:-20])
    with pytest.raises(StepError, match=rf"{record.name} is damaged"):
        materialise(leaf(1), str(tmp_path))
