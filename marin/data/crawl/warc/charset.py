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
    for bom, charset in _BOMS:
        if data.startswith(bom):
            text = _strict(data[len(bom) :], charset)
            if text is not None:
                return DecodedText(text, charset, "bom", ())
            data = data[len(bom) :]
            break
    bad: list[str] = []
    for label, origin in _labels(data, content_type):
        codec = codec_of(label)
        if codec and codec.startswith("utf-16") and b"\0" not in data:
            codec = None  # markup in UTF-16 has a zero in every ASCII character
        text = _strict(data, codec) if codec else None
        if codec and text is not None:
            return DecodedText(text, codec, origin, tuple(bad))
        bad.append(label)
    text = _strict(data, "utf-8")
    if text is not None:
        return DecodedText(text, "utf-8", "utf-8", tuple(bad))
    detected = codec_of(detect_encoding(data[:_DETECTION_BYTES]) or "") or "cp1252"
    for codec in (detected, "cp1252"):
        text = _strict(data, codec)
        if text is not None:
            return DecodedText(text, codec, "detected", tuple(bad))
    # Nearly valid UTF-8 is UTF-8 with a fault; anything else is what detection says.
    candidates = [(data.decode(codec, "replace"), codec) for codec in ("utf-8", detected)]
    text, codec = min(candidates, key=lambda candidate: candidate[0].count("\ufffd"))
    return DecodedText(text, codec, "replaced", tuple(bad))


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
