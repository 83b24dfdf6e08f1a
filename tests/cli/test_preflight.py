"""`marin preflight` and `--preflight`: what they print, and that a failure keeps a run from starting."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from marin.cli import preflight as command
from marin.cli.main import main
from marin.operate import Finding, Flight, Level

WELL = Finding("store", Level.ok, "2 workers write 200 MB/s")
ODD = Finding("clocks", Level.warn, "the clock of rank 1 (b) is 5 s ahead", "start a time service")
BROKEN = Finding("collectives", Level.fail, "1 of 2 workers met", "open the network")


def found(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> list[Flight]:
    """The checks find that, and nothing starts; what they were asked."""
    asked: list[Flight] = []

    def look(flight: Flight) -> list[Finding]:
        asked.append(flight)
        return list(findings)

    monkeypatch.setattr(command, "preflight", look)
    return asked


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["preflight", *arguments])
    return int(ended.value.code or 0)


def test_findings_are_a_line_each_with_the_way_out_and_the_exit_code_says_whether_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = found(monkeypatch, WELL, ODD)
    assert run("--scale", "smoke", "--prefix", "p", "--fleet.workers_per_node", "1", "--any-region") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "warn clocks: the clock of rank 1 (b) is 5 s ahead; start a time service",
        "a run may start",
    ]
    (flight,) = asked
    assert (flight.prefix, flight.fleet.workers, flight.fleet.workers_per_node) == ("p", 2, 1)
    assert flight.any_region and flight.cluster is None
    found(monkeypatch, WELL, BROKEN)
    assert run("--scale", "smoke", "--prefix", "p") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "do not start a run"


def test_findings_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found(monkeypatch, WELL, BROKEN)
    assert run("--scale", "smoke", "--prefix", "p", "--json") == 1
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["passed"] is False
    assert said["findings"][1] == {
        "subject": "collectives",
        "level": "fail",
        "detail": "1 of 2 workers met",
        "way_out": "open the network",
    }


def test_what_a_rank_needs_is_reckoned_from_the_scales_own_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from marin.parallel.activations import Activations
    from marin.parallel.fit import RankMemory
    from marin.recipes import scale_named
    from marin.training import fit

    asked: list[Any] = []
    memory = RankMemory(
        weights=10**9,
        gradients=10**9,
        optimizer=2 * 10**9,
        optimizer_on_host=0,
        buffers=0,
        gathered=5 * 10**8,
        reduced=5 * 10**8,
        activations=Activations(*[3 * 10**9 for _ in fields(Activations)]),
        even_weights=1e9,
    )
    monkeypatch.setattr(fit, "memory_of", lambda *plan, **fleet: (asked.append((plan, fleet)), memory)[1])
    scale = scale_named("smoke")
    peak, made_of = command.needed_memory(scale, "cuda")
    assert asked == [((scale.model, scale.training), {"ranks": 2, "device_type": "cuda"})]
    assert peak == memory.peak
    assert made_of.startswith("state 4.0, gathered and summed 1.0, activations ")


def test_a_run_does_not_start_when_the_gate_finds_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from marin.cli.experiment import experiment_main
    from marin.execution import Fleet
    from tests.execution.graphs import Probe, executions, gang

    (tmp_path / "tally").mkdir()
    asked = found(monkeypatch, BROKEN)
    flags = ["--prefix", str(tmp_path / "prefix"), "--preflight"]
    with pytest.raises(SystemExit) as ended:
        experiment_main(lambda scale: gang("plain", Probe(str(tmp_path / "tally"))).on(Fleet()), "smoke", flags)
    assert ended.value.code == 1
    assert len(asked) == 1
    said = capsys.readouterr().err
    assert "fail collectives: 1 of 2 workers met; open the network" in said
    assert "nothing was run" in said
    assert executions(tmp_path / "tally", "gang-plain") == 0
    assert not (tmp_path / "prefix/_claims").exists()
