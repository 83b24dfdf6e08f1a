"""The effective configuration: a scale, a YAML file over it, flags over that; typed and validated by draccus."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import typing
from pathlib import Path
from typing import Any, TypeVar

from marin.cli.arguments import USAGE_ERROR, fail, nearest
from marin.cli.kinds import hints_of, members_of, wrong_kind

C = TypeVar("C")


def paths_of(tree: Any, prefix: str = "") -> list[str]:
    """Every dotted path into a nested mapping; members of lists by their index."""
    members: list[tuple[str, Any]] = []
    if isinstance(tree, dict):
        members = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list):
        members = [(str(index), value) for index, value in enumerate(tree)]
    found = []
    for key, value in members:
        path = f"{prefix}.{key}" if prefix else key
        found += [path, *paths_of(value, path)]
    return found


def split_overrides(rest: list[str], tree: Any, flags: list[str]) -> list[tuple[str, str]]:
    """(dotted path, text) pairs of arguments like `--training.steps 50` or `--training.steps=50`.

    Exits with one line for whatever else is left on the command line.
    """
    known = set(paths_of(tree))
    pairs: list[tuple[str, str]] = []
    index = 0
    while index < len(rest):
        word, separator, value = rest[index].partition("=")
        if not word.startswith("--"):
            fail(f"unexpected argument {word!r}; settings are given as --name value", USAGE_ERROR)
        path = word[2:]
        if path not in known:
            candidates = [*flags, *(f"--{one}" for one in known)]
            kind = "setting" if "." in path else "flag"
            fail(f"unknown {kind} {word}{nearest(word, candidates) or '; see --help, or marin config'}", USAGE_ERROR)
        if not separator:
            index += 1
            if index >= len(rest):
                fail(f"{word} needs a value", USAGE_ERROR)
            value = rest[index]
        pairs.append((path, value))
        index += 1
    return pairs


def value_of(text: str, old: Any) -> Any:
    """The value that a flag's text means in place of `old`; raises `yaml.YAMLError`.

    YAML would read a version 2026.10 as a number and a word `no` as false, so where a text stood the text stays.
    """
    import yaml

    value = yaml.safe_load(text)
    return text if isinstance(old, str) and value is not None and not isinstance(value, (str, list, dict)) else value


def get_path(tree: Any, path: str) -> Any:
    """The value at a dotted path that exists."""
    for part in path.split("."):
        tree = tree[int(part)] if isinstance(tree, list) else tree[part]
    return tree


def set_path(tree: Any, path: str, value: Any) -> None:
    """Put a value at a dotted path that exists."""
    folder, _, last = path.rpartition(".")
    tree = get_path(tree, folder) if folder else tree
    if isinstance(tree, list):
        tree[int(last)] = value
    else:
        tree[last] = value


def merge(config: Any, tree: Any, other: Any, path: str = "") -> Any:
    """`tree`, the plain values of `config`, with the values of `other` in place of its own.

    Only dataclasses are merged field by field; lists and tables are replaced whole. An unknown field exits with one
    line.
    """
    if not (dataclasses.is_dataclass(config) and isinstance(other, dict)):
        return other
    merged = dict(tree)
    for key, value in other.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in merged:
            fail(f"the config has no {where}{nearest(str(key), map(str, merged))}", USAGE_ERROR)
        check_kind(hints_of(type(config))[key], value, where)
        if is_other_alternative(hints_of(type(config))[key], getattr(config, key), value):
            merged[key] = value
            continue
        merged[key] = merge(getattr(config, key), merged[key], value, where)
    return merged


def is_other_alternative(annotation: Any, now: Any, value: Any) -> bool:
    """Whether a table is meant for another dataclass of a union than the one that stands there."""
    classes = [member for member in members_of(annotation) if dataclasses.is_dataclass(member)]
    if len(classes) < 2 or not isinstance(value, dict) or not dataclasses.is_dataclass(now):
        return False
    return not set(value) <= {field.name for field in dataclasses.fields(now)}


def check_kind(annotation: Any, value: Any, where: str) -> None:
    """Exit with one line when a value cannot be meant for a setting."""
    wrong = wrong_kind(annotation, value, where)
    if wrong is not None:
        fail(wrong, USAGE_ERROR)


def annotation_at(config: Any, path: str) -> Any:
    """The annotation of the setting at a dotted path, or Any below a list or table."""
    annotation: Any = Any
    for part in path.split("."):
        if not dataclasses.is_dataclass(config):
            return Any
        annotation = hints_of(type(config))[part]
        config = getattr(config, part)
    return annotation


def read_yaml(text: str) -> Any:
    """YAML in which no key stands twice, since the first of two would be lost; raises `yaml.YAMLError`."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that stands twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} stands twice", node.start_mark
                    )
            return super().construct_mapping(node, deep)

    return yaml.load(text, Loader)


def read_config(path: str) -> Any:
    """The mapping in a YAML file, or one line of what is wrong with it."""
    import yaml

    try:
        loaded = read_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"--config {path}: {error.strerror}", USAGE_ERROR)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"--config {path} is not YAML: {' '.join(str(error).split())}", USAGE_ERROR)
    if not isinstance(loaded, dict):
        fail(f"--config {path} holds no mapping; print one with: marin config", USAGE_ERROR)
    return loaded


def encode_config(config: Any) -> Any:
    """A config as nested plain values; enums are their names, as draccus reads them."""
    import draccus

    return plain(draccus.encode(config))


def plain(value: Any) -> Any:
    """draccus leaves members of text enums as they are; YAML has only their names."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def to_yaml(config: Any) -> str:
    """A config as a replayable YAML file, in the order of its fields."""
    import yaml

    return str(yaml.safe_dump(encode_config(config), sort_keys=False, allow_unicode=True, width=100))


def effective(config: C, config_file: str | None, rest: list[str], flags: list[str]) -> C:
    """The config with a file's values and a command line's overrides over it; exits with 2 when one is wrong."""
    if config_file is None and not rest:
        return config
    import yaml

    tree = copy.deepcopy(encode_config(config))
    if config_file is not None:
        tree = merge(config, tree, read_config(config_file))
    for path, text in split_overrides(rest, tree, flags):
        try:
            value = value_of(text, get_path(tree, path))
        except yaml.YAMLError:
            fail(f"--{path}: {text!r} is not a YAML value", USAGE_ERROR)
        check_kind(annotation_at(config, path), value, f"--{path}")
        set_path(tree, path, value)
    return decode_config(type(config), tree)


def decode_config(kind: type[C], tree: Any) -> C:
    """The typed config of plain values; a value that does not fit exits with one line naming it."""
    import draccus

    try:
        return draccus.decode(kind, tree)  # type: ignore[no-any-return]
    except (ValueError, TypeError, draccus.utils.DecodingError, draccus.utils.ParsingError) as error:
        fail(f"config: {_refusal(kind, tree) or ' '.join(str(error).split())}", USAGE_ERROR)


def _refusal(annotation: Any, value: Any, where: str = "") -> str | None:
    """What the innermost class that refuses its values says, after the path to it; None when no class does.

    draccus says only that a class refused, and not even which when there are alternatives (`Group | None`), so the
    parts are tried from the inside; those that can be made have no part in it.
    """
    import draccus

    if not isinstance(value, (dict, list, tuple)):
        return None
    # A word that no member of an enum has is a KeyError.
    with contextlib.suppress(ValueError, TypeError, KeyError, draccus.utils.ParsingError):
        draccus.decode(annotation, value)
        return None
    prefix = f"{where}." if where else ""
    for member in members_of(annotation):
        arguments = typing.get_args(member)
        parts: list[tuple[Any, Any, str]] = []
        if isinstance(value, dict) and dataclasses.is_dataclass(member):
            hints = hints_of(member)  # type: ignore[arg-type]
            if not set(value) <= set(hints):
                continue
            parts = [(hints[key], item, f"{prefix}{key}") for key, item in value.items()]
        elif isinstance(value, dict) and len(arguments) == 2:
            parts = [(arguments[1], item, f"{prefix}{key}") for key, item in value.items()]
        elif isinstance(value, (list, tuple)) and arguments:
            parts = [(arguments[0], item, f"{prefix}{index}") for index, item in enumerate(value)]
        inner = next((text for part in parts if (text := _refusal(*part)) is not None), None)
        if inner is None and dataclasses.is_dataclass(member) and isinstance(value, dict):
            inner = _own_refusal(member, value, where)
        if inner is not None:
            return inner
    return None


def _own_refusal(cls: Any, value: dict[str, Any], where: str) -> str | None:
    import draccus

    try:
        draccus.decode(cls, value)
    except draccus.utils.DecodingError:
        return None
    except draccus.utils.ParsingError as error:
        reason = error.__cause__
        while reason is not None and isinstance(reason.__cause__, (ValueError, TypeError)):
            reason = reason.__cause__
        text = " ".join(str(reason or error).split())
        return f"{where}: {text}" if where and not text.startswith(f"{where}.") else text
    return None
