"""The metrics log across interruptions, and its TensorBoard form."""

from __future__ import annotations

import io
import json
import math
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from marin.checkpoint.errors import CheckpointError
from marin.training.curve import render_curve
from marin.training.metrics import MetricsLog, read_segments
from marin.training.tensorboard import scalars, write_events
from marin.training.unigram import unigram_log_probabilities, unigram_loss
from tests.checkpoint.holder import holder
from tests.training.segments import closed


def test_lines_after_the_last_closed_segment_of_a_checkpoint_belong_to_no_one(tmp_path: Any) -> None:
    first = MetricsLog(holder(str(tmp_path)).state)
    for step in (1, 2, 3):
        first.append(step, {"loss": 10.0 + step})
    saved = closed(first)
    for step in (4, 5):
        first.append(step, {"loss": 99.0})
    closed(first)

    state = holder(str(tmp_path), epoch=2).state
    second = MetricsLog(state, saved)
    assert second.next_step == 4
    for step in (4, 5, 6):
        second.append(step, {"loss": 10.0 + step})
    lines = list(read_segments(state.store, closed(second)))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] for line in lines] == [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]


def test_steps_come_in_order_each_once(tmp_path: Any) -> None:
    log = MetricsLog(holder(str(tmp_path)).state)
    log.append(1, {})
    for step in (1, 3):
        with pytest.raises(ValueError, match=f"step {step} "):
            log.append(step, {})


def test_a_missing_segment_is_an_error_and_not_a_shorter_curve(tmp_path: Any) -> None:
    state = holder(str(tmp_path)).state
    log = MetricsLog(state)
    for step in (1, 2):
        log.append(step, {})
        closed(log)
    segments = closed(log)
    with pytest.raises(CheckpointError, match="step 2 where 1 comes next"):
        list(read_segments(state.store, segments[1:]))


def test_figures_that_are_not_finite_are_null_in_standard_json(tmp_path: Any) -> None:
    state = holder(str(tmp_path)).state
    log = MetricsLog(state)
    log.append(1, {"loss": math.nan, "seconds": {"step": math.inf}, "loads": [1.0, math.nan]})
    (segment,) = closed(log)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads(state.store.read(segment.key), parse_constant=refuse)
    assert line == {"step": 1, "loss": None, "seconds": {"step": None}, "loads": [1.0, None]}


def test_tensorboard_reads_every_number_of_every_line(tmp_path: Any) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = [
        {"step": n, "time": 5.0, "loss": 1.0 / n, "skipped": False, "router": {"load": [1.0, 2.0]}} for n in (1, 2)
    ]
    sink = io.BytesIO()
    assert write_events(sink, lines, [{"step": 2, "loss": 0.25}]) == 7
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "events.out.tfevents.0.x").write_bytes(sink.getvalue())
    read = EventAccumulator(str(folder)).Reload()
    assert set(read.Tags()["scalars"]) == {"loss", "router/load/0", "router/load/1", "validation/loss"}
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(1, 1.0), (2, 0.5)]
    assert dict(scalars(lines[0])) == {"loss": 1.0, "router/load/0": 1.0, "router/load/1": 2.0}


def test_the_unigram_model_is_the_smoothed_frequency_weighted_by_use() -> None:
    counts = {"a": np.array([6, 2, 0], dtype=np.int64), "b": np.array([0, 0, 5], dtype=np.int64)}
    log_probabilities = unigram_log_probabilities(counts, {"a": 4.0, "b": 20.0}, 4)
    assert np.exp(log_probabilities) == pytest.approx(np.array([3 + 1, 1 + 1, 20 + 1, 1]) / 28)
    loss = unigram_loss(log_probabilities, np.array([1, 0, 2, 0], dtype=np.int64))
    assert loss == pytest.approx(-(math.log(4 / 28) + 2 * math.log(21 / 28)) / 3)


def test_the_curve_is_an_svg_with_every_validation_in_it() -> None:
    root = ElementTree.fromstring(render_curve([(1, 5.0), (2, 4.0), (3, 3.5)], [(2, 4.2), (3, 3.6)], 4.8))
    space = "{http://www.w3.org/2000/svg}"
    heights = [float(dot.attrib["cy"]) for dot in root.iter(f"{space}circle")]
    assert len(heights) == 2
    assert heights[0] < heights[1]
    assert "unigram model 4.800" in [text.text for text in root.iter(f"{space}text")]
