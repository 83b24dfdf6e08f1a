"""The commands that look at a prefix and change nothing: `marin status`, `explain`, `diff`, `show`, `ls`, `cat`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin.storage import open_store


def run(name: str, arguments: Mapping[str, Any]) -> int:
    """Run one of the commands; returns the exit code."""
    store = open_store(arguments["prefix"])
    if name == "status":
        from marin.cli.status import status

        return status(store, arguments["run"], arguments["all"])
    if name == "explain":
        from marin.cli.explain import explain

        return explain(store, arguments["step"])
    if name == "diff":
        from marin.cli.diff import diff

        return diff(store, arguments["step"], arguments["other"], arguments["all"])
    if name == "show":
        from marin.cli.show import show

        return show(store, arguments["step"])
    if name == "ls":
        from marin.cli.ls import list_things

        return list_things(store, arguments["what"])
    from marin.cli.cat import cat

    return cat(store, arguments["what"], arguments["file"], arguments["limit"])
