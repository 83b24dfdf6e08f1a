"""Tokenizers that were made elsewhere: their files, and what their settings name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from marin.data.inputs.files import read_input
from marin.execution import StepError
from marin.tokens.tokenizer.artifacts import TEMPLATE_FILE, TOKENIZER_FILE
from marin.tokens.tokenizer.codec import TextCodec, special_token
from marin.tokens.tokenizer.config import ImportConfig, KnownTokenizer

SETTINGS_FILE = "tokenizer_config.json"


@dataclass(frozen=True)
class KnownFiles:
    """The files of a tokenizer in the layout of Hugging Face.

    Attributes:
        definition: content of ``tokenizer.json``.
        settings: content of ``tokenizer_config.json``; empty where there is none.
        chat_template: Jinja template of conversations, or None.
    """

    definition: str
    settings: dict[str, Any]
    chat_template: str | None

    def spelling(self, name: str) -> str | None:
        """The spelling of the ``bos``, ``eos`` or ``pad`` token that the settings name, or None."""
        named = self.settings.get(f"{name}_token")
        if isinstance(named, dict):
            named = named.get("content")
        return named if isinstance(named, str) and named else None


def read_known(known: KnownTokenizer) -> KnownFiles:
    """The files of a tokenizer.

    Raises:
        StepError: there is no ``tokenizer.json``, or a file of it is no JSON.
    """
    field, path = f"the tokenizer {known.name!r}", known.files.path.rstrip("/")
    if path.endswith(".json"):
        return KnownFiles(_decoded(field, path), {}, None)
    settings = _optional(field, f"{path}/{SETTINGS_FILE}")
    found = {} if settings is None else _parsed(settings, field, f"{path}/{SETTINGS_FILE}")
    template = _optional(field, f"{path}/{TEMPLATE_FILE}") or _default_template(found.get("chat_template"), field)
    return KnownFiles(_decoded(field, f"{path}/{TOKENIZER_FILE}"), found, template)


def _default_template(given: Any, field: str) -> str | None:
    """The chat template of the settings; of a list of named ones, the one called ``default``."""
    if given is None or isinstance(given, str):
        return given
    named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
    if not isinstance(named.get("default"), str):
        raise StepError(
            f"{field}: chat_template in {SETTINGS_FILE} is neither a template nor a list with one called 'default' "
            f"(it has {', '.join(map(repr, named)) or 'none'}); put the wanted one into {TEMPLATE_FILE}"
        )
    return str(named["default"])


def _decoded(field: str, path: str) -> str:
    try:
        return read_input(field, path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise StepError(f"{field}: {path!r} is no UTF-8 text ({error})") from error


def _optional(field: str, path: str) -> str | None:
    """The text of a file that need not be there."""
    from fsspec.core import url_to_fs

    filesystem, stripped = url_to_fs(path)
    return _decoded(field, path) if filesystem.exists(stripped) else None


def _parsed(text: str, field: str, path: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise StepError(f"{field}: {path!r} is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise StepError(f"{field}: {path!r} holds a {type(found).__name__}; a JSON object is wanted")
    return found


def codec_of(known: KnownTokenizer) -> TextCodec:
    """A codec without edge tokens, for comparisons.

    Raises:
        StepError: the file is no byte-level tokenizer that is read here.
    """
    return named_codec(known, read_known(known).definition)


def named_codec(known: KnownTokenizer, definition: str, *, bos: str | None = None, eos: str | None = None) -> TextCodec:
    """The codec of a definition that came from outside; raises `StepError` with its name."""
    try:
        parsed = json.loads(definition)
        if not isinstance(parsed, dict) or not {"added_tokens", "model"} <= parsed.keys():
            raise ValueError("it is no tokenizer.json of the tokenizers library: 'added_tokens' or 'model' is missing")
        return TextCodec.named(definition, bos=bos, eos=eos)
    except Exception as error:  # the library raises plain Exception for what it cannot parse
        raise StepError(f"the tokenizer {known.name!r} ({known.files.path}) cannot be used: {error}") from error


def special_id(known: KnownTokenizer, definition: str, name: str, spelling: str) -> int:
    """The id of a special token of a definition that came from outside; raises `StepError` with its name."""
    try:
        return special_token(definition, name, spelling)
    except ValueError as error:
        raise StepError(f"the tokenizer {known.name!r} ({known.files.path}) cannot be used: {error}") from error


@dataclass(frozen=True)
class Edges:
    """Spellings of the tokens around a document; ``pad`` may be that of ``eos``."""

    bos: str | None
    eos: str
    pad: str


def edges_of(files: KnownFiles, config: ImportConfig) -> Edges:
    """The edge tokens that the configuration names, or else the tokenizer's own settings.

    Raises:
        StepError: no end-of-document token is named.
    """
    eos = config.eos or files.spelling("eos")
    if eos is None:
        raise StepError(
            f"the tokenizer {config.known.name!r} ({config.known.files.path}) names no end-of-document token; say "
            "which special token it is: ImportConfig(…, eos='…')"
        )
    return Edges(config.bos or files.spelling("bos"), eos, config.pad or files.spelling("pad") or eos)
