"""`marin model`: what a rank holds, and what is refused."""

from __future__ import annotations

import json

import pytest

from marin.cli.main import main


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["model", *arguments])
    return int(ended.value.code or 0)


def test_bytes_of_the_fullest_rank_follow_the_settings_and_the_card(capsys: pytest.CaptureFixture[str]):
    assert run("--scale", "smoke", "--gpus", "2", "--memory-gb", "1") == 0
    printed, table = capsys.readouterr()
    told = json.loads(printed)
    rank = told["per_rank"]
    assert rank["weights_bytes"] == pytest.approx(told["total_parameters"] * 4 / 2, rel=1e-2)
    assert rank["optimizer_bytes"] == pytest.approx(2 * rank["weights_bytes"], rel=1e-2)
    assert rank["fits"] is True
    assert "fits: 0.9 GB" in table

    settings = ("--parallel.ep", "1", "--optimizer.kind=LION", "--recompute", "FULL", "--memory-gb", "0.001")
    assert run("--scale", "smoke", "--gpus", "2", *settings) == 0
    other = json.loads(capsys.readouterr().out)["per_rank"]
    assert other["optimizer_bytes"] == pytest.approx(other["weights_bytes"], rel=1e-2)
    assert other["activations_kept_bytes"] < rank["activations_kept_bytes"] / 2
    assert other["fits"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scale", "hero", "--gpus", "512"), "= 704 ranks, but the fleet has 512; nearest that fit: dp_replicate 8"),
        (("--scale", "hero", "--gpus", "704", "--parallel.ep", "33"), "ep must divide dp_shard"),
        (("--scale", "smoke", "--gpus", "2", "--paralel.ep", "1"), "did you mean --parallel.ep"),
        (("--scale", "smoke", "--parallel.ep", "1"), "unknown argument --parallel.ep"),
        (("--scale", "hero", "--gpus", "704", "--accelerator", "H1000"), "H1000"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
):
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
