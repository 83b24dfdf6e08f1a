"""Logs of steps that run at the same time in one process."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

from marin.execution.running.captured_log import captured_log

logger = logging.getLogger(__name__)


def test_each_step_has_its_own_lines_and_those_of_its_threads() -> None:
    both = threading.Barrier(2)

    def work(name: str) -> str:
        with captured_log() as log:
            both.wait()
            logger.info("of %s", name)
            thread = threading.Thread(target=lambda: logger.info("thread of %s", name))
            thread.start()
            thread.join()
            both.wait()
            return log.getvalue()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, ["first", "second"])
    assert " of first" in first and ": of second" not in first
    assert ": of second" in second and ": of first" not in second
    assert "thread of first" in first and "thread of second" in second


def test_the_level_is_given_back_after_the_last_of_overlapping_logs() -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        outer, inner = captured_log(), captured_log()
        outer.__enter__()
        log = inner.__enter__()
        outer.__exit__(None, None, None)
        assert root.level == logging.INFO
        logger.info("still heard")
        inner.__exit__(None, None, None)
        assert root.level == logging.ERROR
        assert "still heard" in log.getvalue()
    finally:
        root.setLevel(before)


def test_a_block_inside_a_block_has_its_lines_alone() -> None:
    with captured_log() as outer:
        logger.info("before")
        with captured_log() as inner:
            logger.info("inside")
        logger.info("after")
    assert "before" in outer.getvalue() and "after" in outer.getvalue() and "inside" not in outer.getvalue()
    assert inner.getvalue().count("\n") == 1
