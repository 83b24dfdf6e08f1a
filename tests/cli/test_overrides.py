"""The effective configuration: scale, file, flags."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from marin.cli.overrides import decode_config, effective, encode_config, to_yaml
from marin.recipes import Scale, scale_named, scale_names

FLAGS = ["--scale", "--config", "--prefix"]


@pytest.mark.parametrize("name", scale_names())
def test_a_scale_survives_its_yaml_file(name: str, tmp_path: Path) -> None:
    scale = scale_named(name)
    assert decode_config(Scale, encode_config(scale)) == scale
    file = tmp_path / "scale.yaml"
    file.write_text(to_yaml(scale))
    assert effective(scale_named("smoke"), str(file), [], FLAGS) == scale


def test_flags_come_over_the_file_and_the_file_over_the_scale(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("training:\n  steps: 7\n  seed: 3\n")
    scale = effective(scale_named("smoke"), str(file), ["--training.steps", "9", "--fleet.spot=true"], FLAGS)
    assert (scale.training.steps, scale.training.seed, scale.fleet.spot) == (9, 3, True)
    assert scale.model == scale_named("smoke").model


def test_a_table_in_a_file_replaces_the_scales_table_whole(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("tokenizer:\n  source_weights: {stdlib: 1.0, packages: 3}\n")
    scale = effective(scale_named("smoke"), str(file), [], FLAGS)
    assert scale.tokenizer.source_weights == {"stdlib": 1.0, "packages": 3.0}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (["--trainin.steps", "5"], "did you mean --training.steps"),
        (["--training.steps"], "needs a value"),
        (["training.steps", "5"], "unexpected argument 'training.steps'"),
        (["--training.steps", "0"], "steps is 0; give at least 1"),
        (["--training.steps", "[1"], "is not a YAML value"),
        (["--extract.extractor", "boilerpipe"], "extractor"),
        (["--signals.language.keep", "de"], "--signals.language.keep takes a list such as [a, b], not 'de'"),
        (["--signals.language.keep", "[en, no]"], "--signals.language.keep.1 takes a text, not false (or no)"),
        (["--training.steps", "null"], "--training.steps takes a whole number, not null"),
        (["--model.window", "true"], "--model.window takes a whole number, not true"),
        (["--training.optimizer.kind", "SGD"], "takes one of ADAMW, MUONH, ADAFACTOR, LION, not 'SGD'"),
        (["--training.gradient_clip", ".nan"], "gradient_clip is nan; give a finite number"),
        (["--training.optimizer.weight_decay", ".inf"], "weight_decay is inf; give a finite number"),
        (["--training.checkpoints.every_minutes", ".nan"], "checkpoints.every_minutes is nan; give a finite number"),
        (["--training.optimizer.learning_rate", "100"], "give a positive peak rate below 10"),
        (["--training", "5"], "--training takes a group of settings, not 5"),
        (["--spans.least_words", "0"], "error: config: spans: SpanConfig.least_words is 0; it must be at least 2"),
        (["--spans", "{least_words: 0}"], "error: config: spans: SpanConfig.least_words is 0; it must be at least 2"),
        (["--policy.rules", "{words: {minimum_words: -1}}"], "policy.rules.words: WordRules.minimum_words is -1"),
        (["--policy.language", "{keep: [english]}"], "config: policy.language: LanguageConfig.keep names 'english'"),
        (["--texts", "[{source: a, files: []}]"], "config: texts.0: source 'a' has neither of files and dataset"),
        (["--training.steps", "many"], "`training.steps`: Couldn't parse 'many' into an int"),
        (["--evaluation.choice_items", "many"], "Couldn't parse 'many' into an int"),
        (["--dedup.protected", "[nothing]"], "dedup.protected names 'nothing', which is no source"),
        (["--policy.licence.keep", "[ccby]"], "LicenceConfig.keep names 'ccby'"),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(
    rest: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        effective(scale_named("smoke"), None, rest, FLAGS)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainig: {steps: 5}", "the config has no trainig; did you mean training"),
        ("training: {step: 5}", "the config has no training.step; did you mean steps"),
        ("- a list", "holds no mapping"),
        ("a: [", "is not YAML"),
        ("training: 5", "training takes a group of settings, not 5"),
        ("training: {steps: [1]}", "training.steps takes a whole number"),
        ("training: {steps: 7}\ntraining: {seed: 3}", "'training' stands twice"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_field(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit) as stop:
        effective(scale_named("smoke"), str(file), [], FLAGS)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


class Device(enum.Enum):
    """Words that a setting may have."""

    CPU = "cpu"


@dataclass(frozen=True)
class Size:
    """A group that refuses its values."""

    size: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size is {self.size}; give at least 1")


@dataclass(frozen=True)
class Flat:
    """An alternative."""

    size: Size | None = None


@dataclass(frozen=True)
class Deep:
    """The other alternative."""

    depth: int = 1
    size: Size | None = None
    further: dict[str, Size | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """Alternatives whose groups may be left out."""

    shape: Flat | Deep | None = None
    others: tuple[Flat | Deep, ...] = ()
    devices: tuple[Device, ...] = ()


@pytest.mark.parametrize(
    ("tree", "line"),
    [
        ({"shape": {"size": {"size": 0}}}, "shape.size: size is 0; give at least 1"),
        ({"shape": {"depth": 2, "size": {"size": 0}}}, "shape.size: size is 0; give at least 1"),
        ({"shape": {"further": {"a": {}, "b": {"size": -1}}}}, "shape.further.b: size is -1; give at least 1"),
        ({"others": [{"size": {}}, {"depth": 2, "size": {"size": 0}}]}, "others.1.size: size is 0; give at least 1"),
        ({"devices": ["cpu", "gpu"], "shape": {"size": {"size": 0}}}, "shape.size: size is 0; give at least 1"),
    ],
)
def test_what_a_group_refuses_is_told_through_any_alternatives(
    tree: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        decode_config(Choice, tree)
    assert capsys.readouterr().err == f"error: config: {line}\n"


def test_a_flag_for_a_text_is_taken_as_it_is_typed() -> None:
    node = scale_named("node")
    assert effective(node, None, ["--crawls.0.warcs.0.version", "2026.10"], []).crawls[0].warcs[0].version == "2026.10"
    assert effective(node, None, ["--evaluation.device", "no"], []).evaluation.device == "no"
    assert effective(node, None, ["--evaluation.device", "'cpu'"], []).evaluation.device == "cpu"
    assert effective(node, None, ["--training.seed", "7"], []).training.seed == 7
