"""Settings of different groups that must agree are looked at before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from marin.data.consolidation.config import LicenceConfig
from marin.data.crawl.config import external_crawl
from marin.data.dedup.config import DedupConfig
from marin.data.filtering.config import LanguageConfig
from marin.recipes import Scale, scale_named
from marin.tokens.shards.config import PackingConfig


def smoke() -> Scale:
    return scale_named("smoke")


def policy(licence: LicenceConfig) -> Scale:
    return replace(smoke(), policy=replace(smoke().policy, licence=licence))


def weights(**given: float) -> Scale:
    return replace(smoke(), tokenizer=replace(smoke().tokenizer, source_weights=given))


@pytest.mark.parametrize(
    ("setting", "make"),
    [
        ("dedup.priority", lambda: replace(smoke(), dedup=DedupConfig(priority=("stdlib", "wikpedia")))),
        ("dedup.protected", lambda: replace(smoke(), dedup=DedupConfig(protected=("wikpedia",)))),
        ("policy.licence.of_source", lambda: policy(LicenceConfig(of_source={"wikpedia": "MIT"}))),
        ("tokenizer.source_weights", lambda: weights(stdlib=1.0, packages=1.0, wikpedia=1.0)),
        ("quality.positive", lambda: replace(smoke(), quality=replace(smoke().quality, positive=("wikpedia",)))),
        (
            "quality.negative",
            lambda: replace(smoke(), quality=replace(smoke().quality, positive=("stdlib",), negative=("wikpedia",))),
        ),
    ],
)
def test_a_setting_that_names_no_source_is_refused_by_name_value_and_what_there_is(
    setting: str, make: Callable[[], Scale]
) -> None:
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value).startswith(f"{setting} names 'wikpedia', which is no source; stdlib, packages are")


def test_names_of_sources_that_are_there_are_taken() -> None:
    named = replace(smoke(), dedup=DedupConfig(priority=("packages",), protected=("stdlib",)))
    assert named.dedup.rank("stdlib") < 0 <= named.dedup.rank("packages")
    assert weights(stdlib=1.0, packages=0.0).tokenizer.source_weights
    assert policy(LicenceConfig(of_source={"stdlib": "PSF-2.0"})).policy.licence.default_of("stdlib") == "PSF-2.0"


@pytest.mark.parametrize("name", ["smoke", "laptop"])
def test_other_crawls_need_no_other_setting_of_the_small_scales(name: str) -> None:
    scale = scale_named(name)
    assert replace(scale, crawls=(external_crawl("web", ("/data/page.warc.gz",), version="1"),)).sources == ("web",)


def test_weights_of_the_tokenizer_leave_no_source_out() -> None:
    with pytest.raises(ValueError, match=r"tokenizer\.source_weights names no 'packages'"):
        weights(stdlib=1.0)


def with_languages(measure: Literal["all", "kept"], keep: tuple[str, ...], policy_keep: tuple[str, ...]) -> Scale:
    scale = smoke()
    return replace(
        scale,
        signals=replace(scale.signals, measure=measure, language=LanguageConfig(keep=keep)),
        policy=replace(scale.policy, language=LanguageConfig(keep=policy_keep)),
    )


def test_a_policy_lets_no_language_pass_that_is_not_measured() -> None:
    for keep in (("en", "de"), ()):
        with pytest.raises(ValueError, match=r"policy\.language\.keep lets (de|every language) pass"):
            with_languages("kept", ("en",), keep)
        with_languages("all", ("en",), keep)
        with_languages("kept", (), keep)
    with_languages("kept", ("en", "de"), ("de",))


@pytest.mark.parametrize(
    ("both", "make"),
    [
        (
            ("tokenize.packing.sequence_length is 64", "model.sequence_length 128"),
            lambda scale: replace(scale, tokenize=replace(scale.tokenize, packing=PackingConfig("truncate", 64))),
        ),
        (
            ("evaluation.max_length is 129", "model.sequence_length 128"),
            lambda scale: replace(scale, evaluation=replace(scale.evaluation, max_length=129)),
        ),
        (
            ("mixture.difficulty_bands is 4", "tokenize.order_by 'stored'"),
            lambda scale: replace(scale, mixture=replace(scale.mixture, difficulty_bands=4)),
        ),
        (
            ("batch_sequences is 15", "on 2 ranks"),
            lambda scale: replace(scale, training=replace(scale.training, batch_sequences=15)),
        ),
    ],
)
def test_settings_that_do_not_go_together_are_both_named(both: tuple[str, str], make: Callable[[Scale], Scale]) -> None:
    with pytest.raises(ValueError) as error:
        make(smoke())
    assert all(part in str(error.value) for part in both)
