"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, and its text."""

    page: Path
    line: int
    language: str
    words: str
    body: str

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, words = match["info"].strip().partition(" ")
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, language, words.strip(), match["body"]))
    return found


def python_of(page: Path) -> dict[str, Any]:
    """What the Python blocks of a page define, run one after the other."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.body, block.place, "exec"), names)
    return names


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    """A page as tests call it."""
    return str(page.relative_to(ROOT))
