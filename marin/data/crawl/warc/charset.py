"""The text of a page's bytes: byte order mark, then HTTP label, then meta label, then detection."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

Origin = Literal["bom", "http", "meta", "utf-8", "detected", "replaced"]

_META = re.compile(rb"<meta[^>]{0,400}?charset\s*=\s*[\"']?\s*([\w.:+-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:+-]{1,40})")
_HTTP = re.compile(r"charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_PROBE = 4096
_DETECTION_BYTES = 64 * 1024
_FAULTLESS = 2
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# What the labels of the WHATWG encoding standard mean to Python where the names differ.
_CODECS = {"windows-1252": "cp1252", "gbk": "gb18030", "iso-8859-8-i": "iso-8859-8", "windows-874": "cp874"}


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A page as text.

    Attributes:
        text: the page, without its byte order mark.
        charset: the codec that decoded it.
        origin: where the codec's name came from; ``"replaced"`` when nothing decoded strictly and faults are U+FFFD.
        bad_labels: labels that name no codec, or one that does not decode the bytes.
    """

    text: str
    charset: str
    origin: Origin
    bad_labels: tuple[str, ...]


def decode_page(data: bytes, content_type: str) -> DecodedText:
    """Decode a page: the first candidate that decodes strictly wins.

    Args:
        data: the body.
        content_type: the HTTP header, for its charset label.
    """
    marked = _marked(data)
    if marked is not None:
        return marked
    data = _without_mark(data)
    bad: list[str] = []
    for label, origin in _labels(data, content_type):
        codec = codec_of(label)
        if codec and codec.startswith("utf-16") and b"\0" not in data:
            codec = None  # markup in UTF-16 has a zero in every ASCII character
        text = _strict(data, codec) if codec else None
        if codec and text is not None:
            return DecodedText(text, codec, origin, tuple(bad))
        bad.append(label)
    return _unlabelled(data, tuple(bad))


def decode_text(data: bytes) -> DecodedText:
    """Decode a plain text, of which nobody has said anything."""
    return _marked(data) or _unlabelled(data, ())


def _unlabelled(data: bytes, bad: tuple[str, ...]) -> DecodedText:
    """UTF-8, or UTF-8 with a fault, or what detection says."""
    text = _strict(data, "utf-8")
    if text is not None:
        return DecodedText(text, "utf-8", "utf-8", bad)
    text = data.decode("utf-8", "replace")
    faults = text.count("\ufffd")
    # In another codec hardly any bytes are characters of UTF-8. With a byte or two a letter, this many are a chance.
    if len(data) - len(text) > _FAULTLESS * faults:
        return DecodedText(text, "utf-8", "replaced", bad)
    detected = codec_of(detect_encoding(data[:_DETECTION_BYTES]) or "") or "cp1252"
    for codec in (detected, "cp1252"):
        strict = _strict(data, codec)
        if strict is not None:
            return DecodedText(strict, codec, "detected", bad)
    replaced = data.decode(detected, "replace")
    if replaced.count("\ufffd") < faults:
        return DecodedText(replaced, detected, "replaced", bad)
    return DecodedText(text, "utf-8", "replaced", bad)


def _marked(data: bytes) -> DecodedText | None:
    """The text that a byte order mark names the codec of, when it decodes."""
    for bom, charset in _BOMS:
        text = _strict(data[len(bom) :], charset) if data.startswith(bom) else None
        if text is not None:
            return DecodedText(text, charset, "bom", ())
    return None


def _without_mark(data: bytes) -> bytes:
    return data[next((len(bom) for bom, _ in _BOMS if data.startswith(bom)), 0) :]


def codec_of(label: str) -> str | None:
    """The Python codec that browsers would use for a label, or None for labels that mean nothing."""
    mapped = map_encoding_to_html5(label, fallback_utf8=False)
    if mapped is None or mapped in ("replacement", "x-user-defined"):
        return None
    name = _CODECS.get(mapped.lower(), mapped)
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _labels(data: bytes, content_type: str) -> Iterator[tuple[str, Origin]]:
    http = _HTTP.search(content_type)
    if http:
        yield http[1], "http"
    head = data[:_PROBE]
    meta = _META.search(head) or _XML.search(head)
    if meta:
        yield meta[1].decode("ascii", "replace"), "meta"


def _strict(data: bytes, codec: str) -> str | None:
    try:
        return data.decode(codec)
    except (UnicodeDecodeError, UnicodeError):
        return None
