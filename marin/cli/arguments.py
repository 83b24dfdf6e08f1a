"""Command lines whose errors are one line: what is wrong, and the nearest names."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable
from typing import NoReturn

USAGE_ERROR = 2
RUN_ERROR = 1


def fail(message: str, code: int) -> NoReturn:
    """Print one clear message to standard error and exit."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def nearest(word: str, known: Iterable[str]) -> str:
    """'; did you mean …?' with the nearest known names, or all of them when none is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; there are {', '.join(names)}" if len(names) <= 20 else ""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser that answers a mistake with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            known = [word.strip(" '") for word in choice[2].split(",")]
            message = f"{message.partition(':')[0]}: {choice[1]!r} is none of {', '.join(known)}"
        fail(message, USAGE_ERROR)

    def command(self, name: str) -> OneLineParser:
        """The parser of a subcommand."""
        subparsers = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        found: OneLineParser = subparsers.choices[name]
        return found

    def flags(self) -> list[str]:
        """Every long flag."""
        return [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]


def refuse_unknown(rest: list[str], known: Iterable[str]) -> None:
    """Exit with one line when arguments are left over."""
    if rest:
        word = rest[0].partition("=")[0]
        fail(f"unknown argument {word}{nearest(word, known)}", USAGE_ERROR)
