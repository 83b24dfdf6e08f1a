"""Where two recipes differ: identity documents compared place by place.

Lists are aligned before they are compared, so that one member more is one difference and not a row of shifted ones.
An identity document holds sets as sorted lists, so the same alignment serves them.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VALUE_LIMIT = 60
"""Characters of a value that are shown."""
LIST_LIMIT = 2_000
"""Members of a list, without what both lists begin and end with, above which it is compared as one value."""
PAIRING_LIMIT = 400
"""Pairs of members that are weighed to find which became which."""

Called = Callable[[str], str]
"""From an identity to what people call its step."""


class Kind(enum.Enum):
    """What differs: the form of the document, the step's name, its version, a setting, or what it is made from."""

    schema = "schema"
    name = "name"
    version = "version"
    config = "config"
    upstream = "upstream"


class Absent(enum.Enum):
    """The place of a difference does not exist on one side."""

    absent = "absent"


ABSENT = Absent.absent


@dataclass(frozen=True)
class Upstream:
    """A dependency where it stands in a config: its identity, and which part of it is meant, if not the whole."""

    identity: str
    part: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Difference:
    """One place where two recipes differ. A side is `ABSENT` where the place exists on the other side only."""

    kind: Kind
    path: str
    old: Any
    new: Any

    @property
    def replaced(self) -> tuple[str, str] | None:
        """(old identity, new identity) when one upstream took the place of another."""
        if isinstance(self.old, Upstream) and isinstance(self.new, Upstream):
            return self.old.identity, self.new.identity
        return None

    def text(self, called: Called) -> str:
        """The difference in words: `extract.max_pages 100 → 200`."""
        if self.kind is Kind.upstream:
            return self._upstream_text(called)
        if self.new is ABSENT:
            return f"{self.path} removed {shown(self.old, called)}"
        if self.old is ABSENT:
            return f"{self.path} added {shown(self.new, called)}"
        old, new = shown_pair(self.old, self.new, called)
        return f"{self.path} {old} → {new}"

    def _upstream_text(self, called: Called) -> str:
        if self.new is ABSENT:
            return f"upstream {called(self.old.identity)} removed at {self.path}"
        if self.old is ABSENT:
            return f"upstream {called(self.new.identity)} added at {self.path}"
        old, new = called(self.old.identity), called(self.new.identity)
        if self.old.identity == self.new.identity:
            return f"upstream {new}: part {shown(list(self.old.part), called)} → {shown(list(self.new.part), called)}"
        return f"upstream {new} in place of {old}"


def short_name(identity: str) -> str:
    """What to call a step of which only the identity is known."""
    return identity[:10]


def compare(old: Mapping[str, Any], new: Mapping[str, Any], role: Called = short_name) -> tuple[Difference, ...]:
    """The differences of two identity documents; none when they are one recipe.

    `role` says what part a dependency plays, such as its step's name and label: where a list of artifacts grew, those
    that play the same part are compared with each other.
    """
    found = [
        Difference(kind, kind.value, old.get(kind.value), new.get(kind.value))
        for kind in (Kind.schema, Kind.name, Kind.version)
        if old.get(kind.value) != new.get(kind.value)
    ]
    found.extend(_compare(_with_upstreams(old), _with_upstreams(new), "", role))
    return tuple(found)


def _with_upstreams(document: Mapping[str, Any]) -> Any:
    """The config of a document with each reference to a dependency replaced by that dependency."""
    dependencies = [Upstream(identity, tuple(part)) for _, identity, *part in document.get("dependencies", ())]

    def resolved(value: Any) -> Any:
        if isinstance(value, Mapping):
            if set(value) == {"$dependency"}:
                return dependencies[value["$dependency"]]
            return {key: resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            return [resolved(item) for item in value]
        return value

    return resolved(document.get("config", {}))


def is_tagged(value: Any) -> bool:
    """Whether a JSON object stands for one value that JSON has no form for, such as infinity or bytes."""
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)).startswith("$")


def _key(value: Any) -> Any:
    """A hashable form that is equal only for the same value: 1, 1.0 and true are three."""
    if isinstance(value, Mapping):
        return "object", tuple(sorted((key, _key(item)) for key, item in value.items()))
    if isinstance(value, list):
        return "list", tuple(map(_key, value))
    return type(value).__name__, value


def _compare(old: Any, new: Any, path: str, role: Called) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not (is_tagged(old) or is_tagged(new)):
        for key in sorted({**old, **new}):
            place = f"{path}.{key}" if path else key
            yield from _compare(old.get(key, ABSENT), new.get(key, ABSENT), place, role)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(old, new, path, role)
    elif _key(old) != _key(new):
        sides = [side for side in (old, new) if side is not ABSENT]
        kind = Kind.upstream if all(isinstance(side, Upstream) for side in sides) else Kind.config
        yield Difference(kind, path, old, new)


def _compare_lists(old: list[Any], new: list[Any], path: str, role: Called) -> Iterator[Difference]:
    before, after = list(map(_key, old)), list(map(_key, new))
    if before == after:
        return
    if max(len(old), len(new)) - _shared_ends(before, after) > LIST_LIMIT:
        yield Difference(Kind.config, path, old, new)
        return
    pairs = _aligned(old, new, before, after, role)
    if len(old) == len(new) and sum(one != two for one, two in zip(before, after, strict=True)) <= len(pairs):
        pairs = [(at, at) for at in range(len(old)) if before[at] != after[at]]
    for one, two in pairs:
        was = old[one] if one is not None else ABSENT
        became = new[two] if two is not None else ABSENT
        yield from _compare(was, became, f"{path}[{two if two is not None else one}]", role)


def _shared_ends(before: list[Any], after: list[Any]) -> int:
    """How many members two lists that differ begin and end with in common."""
    shortest = min(len(before), len(after))
    start = next((at for at in range(shortest) if before[at] != after[at]), shortest)
    left = shortest - start
    return start + next((at for at in range(left) if before[-1 - at] != after[-1 - at]), left)


Pairs = list[tuple[int | None, int | None]]
"""Which member of the old list became which of the new one; None where a member was added or removed."""


def _aligned(old: list[Any], new: list[Any], before: list[Any], after: list[Any], role: Called) -> Pairs:
    """The members that are not equal."""
    pairs: Pairs = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            pairs.extend(_paired(old, new, range(a, b), range(c, d), role))
    return pairs


def _paired(old: list[Any], new: list[Any], olds: range, news: range, role: Called) -> Pairs:
    """The cheapest way from some members to others, where a member is changed, added or removed."""
    if len(olds) == len(news):
        return list(zip(olds, news, strict=True))
    if len(olds) * len(news) > PAIRING_LIMIT:
        shared = min(len(olds), len(news))
        pairs: Pairs = list(zip(olds[:shared], news[:shared], strict=True))
        pairs.extend((one, None) for one in olds[shared:])
        pairs.extend((None, two) for two in news[shared:])
        return pairs
    # cost[i][j]: of turning the first i old members into the first j new ones
    cost = [[float(i + j) for j in range(len(news) + 1)] for i in range(len(olds) + 1)]
    for i, one in enumerate(olds):
        for j, two in enumerate(news):
            changed = cost[i][j] + _distance(old[one], new[two], role)
            cost[i + 1][j + 1] = min(changed, cost[i][j + 1] + 1, cost[i + 1][j] + 1)
    way: Pairs = []
    i, j = len(olds), len(news)
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + _distance(old[olds[i - 1]], new[news[j - 1]], role):
            i, j = i - 1, j - 1
            way.append((olds[i], news[j]))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            way.append((olds[i], None))
        else:
            j -= 1
            way.append((None, news[j]))
    return way[::-1]


def _distance(old: Any, new: Any, role: Called) -> float:
    """How little one member is the other, where removing one and adding another costs 2."""
    if isinstance(old, Upstream) and isinstance(new, Upstream):
        return 1.0 if role(old.identity) == role(new.identity) else 1.5
    if isinstance(old, Mapping) and isinstance(new, Mapping) and not (is_tagged(old) or is_tagged(new)):
        keys = {**old, **new}
        unequal = [key for key in keys if _key(old.get(key, ABSENT)) != _key(new.get(key, ABSENT))]
        return 2.1 * len(unequal) / max(1, len(keys))
    return 1.0 if type(old) is type(new) else 2.1


# --- values as text ---


def shown(value: Any, called: Called = short_name, limit: int = VALUE_LIMIT) -> str:
    """A value in one short line; what does not fit is cut."""
    text = _text(value, called)
    return text if len(text) <= limit else f"{text[: limit - 1]}…{_extent(value)}"


def shown_pair(old: Any, new: Any, called: Called = short_name, limit: int = VALUE_LIMIT) -> tuple[str, str]:
    """Two values that differ, each in one short line that holds the first place where they differ."""
    texts = _text(old, called), _text(new, called)
    if max(map(len, texts)) <= limit:
        return texts
    shared = next((at for at, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = shared - limit // 3 if shared > limit // 2 else 0
    return _window(texts[0], start, limit, old), _window(texts[1], start, limit, new)


def _window(text: str, start: int, limit: int, value: Any) -> str:
    cut = text[start : start + limit - 1]
    if start == 0 and len(text) <= limit:
        return text
    return f"{'…' if start else ''}{cut}{'…' if start + len(cut) < len(text) else ''}{_extent(value)}"


def _extent(value: Any) -> str:
    if isinstance(value, str):
        return f" ({len(value)} characters)"
    if isinstance(value, list):
        return f" ({len(value)} members)"
    return ""


def _text(value: Any, called: Called) -> str:
    if isinstance(value, Upstream):
        return f"<{called(value.identity)}>"
    if is_tagged(value):
        return str(next(iter(value.values())))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(item, called)}" for key, item in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item, called) for item in value) + "]"
    return repr(value)
