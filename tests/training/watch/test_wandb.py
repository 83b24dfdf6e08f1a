"""W&B beside the metrics log: what it is given, and that its absence and its errors are one warning."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from marin.training.metrics import MetricsLog
from marin.training.watch.config import WandbConfig
from marin.training.watch.wandb import Wandb
from tests.checkpoint.holder import holder


class Service:
    """Stands in for the package: notes what it is given, and fails from a step on."""

    def __init__(self, fails_from: int = 10**9) -> None:
        self.started: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0
        self.fails_from = fails_from

    def init(self, **settings: Any) -> Service:
        self.started.append(settings)
        return self

    def log(self, figures: dict[str, float], step: int) -> None:
        if step >= self.fails_from:
            raise ConnectionError("no route to the service")
        self.logged.append((step, figures))

    def finish(self) -> None:
        self.finished += 1

    def module(self) -> ModuleType:
        module = ModuleType("wandb")
        module.init = self.init  # type: ignore[attr-defined]  # as the package has it
        return module


def run(tmp_path: Any, steps: int = 4) -> MetricsLog:
    """A log that a hook listens to, with its lines."""
    log = MetricsLog(holder(str(tmp_path)).state)
    hook = Wandb(WandbConfig("moe"), run="model/pretrain on abc", facts={"steps": steps})
    hook.start(SimpleNamespace(metrics=log))  # type: ignore[arg-type]  # all that it asks of a loop
    for step in range(1, steps + 1):
        log.append(step, {"time": 1.0, "loss": 5.0 - step, "router": {"load": [1.0, 2.0]}})
    hook.validated({"step": steps, "loss": 2.0})
    hook.close()
    return log


def test_every_line_and_evaluation_is_sent_under_one_id_and_offline_unless_asked(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", service.module())
    run(tmp_path)
    (settings,) = service.started
    assert (settings["id"], settings["mode"], settings["resume"]) == ("model-pretrain-on-abc", "offline", "allow")
    assert [step for step, _ in service.logged] == [1, 2, 3, 4, 4]
    assert service.logged[0][1] == {"loss": 4.0, "router/load/0": 1.0, "router/load/1": 2.0}
    assert service.logged[-1][1] == {"validation/loss": 2.0}
    assert service.finished == 1


def test_without_the_package_there_is_one_warning_that_names_the_extra(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with caplog.at_level(logging.WARNING):
        log = run(tmp_path)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "marin[wandb]" in caplog.text
    assert log.next_step == 5


def test_an_error_of_the_service_ends_it_and_not_the_run(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(fails_from=3)
    monkeypatch.setitem(sys.modules, "wandb", service.module())
    with caplog.at_level(logging.WARNING):
        log = run(tmp_path)
    assert [step for step, _ in service.logged] == [1, 2]
    assert len(caplog.records) == 1
    assert "no route to the service" in caplog.text
    assert log.next_step == 5
