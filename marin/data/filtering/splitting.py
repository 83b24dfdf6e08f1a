"""Cutting text into words as English word tokenizers do.

The thresholds of the published rules were set on the words of spaCy's English tokenizer, so its treatment of
punctuation, numbers, contractions and addresses is followed closely: signs at the edges of a word are split off one by
one, some signs inside a word split it, contractions are parted, web addresses stay whole. In scripts that are written
without spaces every character is a word.

A piece between spaces is cut without regard to its neighbours, so that a piece that recurs need not be cut again.
"""

from __future__ import annotations

import re
import string
import unicodedata

from marin.data.filtering.english import special_pieces

# Han, kana, Thai, Lao, Tibetan, Burmese and Khmer letters: no spaces between words.
UNSPACED = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
)
# Vowel signs, tones and the like, and the sign after Tibetan syllables, which belong to the letter before them.
_MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f0b\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e\u0f3f\u0f71-\u0f84"
    "\u0f86\u0f87\u0f8d-\u0fbc\u0fc6\u102b-\u103e\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d"
    "\u108f\u109a-\u109d\u17b4-\u17d3\u17dd\u3099\u309a"
)
UNSPACED_CHARACTER = re.compile(f"([{UNSPACED}][{_MARKS}]*)")
"""One word of a script without spaces."""

FINAL_SIGNS = frozenset("!.?։؟۔܀܁܂߹।॥၊။።፧፨᙮᜵᜶᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？｡。។៕៙៚།༎༏༑༔")
"""Signs that end a sentence."""

LONG_PIECE = 1000
"""Characters above which a piece without white space and unspaced letters is one word: no text, and the affix rules
would be slow on it."""

_QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_SIGNS = "…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪"
_CURRENCY = "$£€¥฿₽﷼₴" + "".join(map(chr, range(0x20A0, 0x20C0)))
_AT_START = frozenset(_QUOTES + _SIGNS + _CURRENCY + "§%=—–")
_AT_END = frozenset(_QUOTES + _SIGNS + "—–") | (FINAL_SIGNS - {"."})
_BEFORE_STOP = frozenset(_QUOTES + _SIGNS + "0123456789%²-+|")
_SMALL = frozenset({"Ll", "Lo", "Lm", "Mn", "Mc"})
_LETTER = r"[^\W\d_]"
_QUOTE_CLASS = re.escape(_QUOTES)
# All that it finds begins with one of the first signs, so that other places are passed over at once.
_INFIX = re.compile(
    rf"(?=[.…+*^,–—~:<>=/-])(\.\.+|…|(?<=[0-9])[+\-*^](?=[0-9-])"
    rf"|(?<=[{_QUOTE_CLASS}]|[^\W\d_A-Z])\.(?=[A-ZÀ-ÖØ-ÞΑ-ΩА-Я{_QUOTE_CLASS}])|(?<={_LETTER}),(?={_LETTER})"
    rf"|(?<=[^\W_])(?:——|---?|[-–—~])(?={_LETTER})|(?<=[^\W_])[:<>=/](?={_LETTER}))"
)
_MAY_SPLIT = re.compile(r"[^\w()\[\]{}#*&!?;'\"%@$\\`|]|[0-9]\*")
"""What every word has that is cut inside."""
_MAYBE_ICON = re.compile(
    "[¦©®°҂\u058d-\u060f\u06de-\u06fe\u07f6\u09fa\u0b70-\u0d79\u0f00-\u109f\u1390-\u1399\u1940-\u1b7c\u2100-\u303f"
    "\u3190-\u33ff\u4dc0-\u4dff\ua490-\ua839\uaa77-\uaa79\ufdfd-\uffff\U00010100-\U0001ffff]"
)
# One plain word with signs around it that come off one by one.
_SIGNS_AROUND = re.compile(
    r"""([("'\[{<#*&_`]*)([A-Za-z0-9](?:[A-Za-z0-9_]*[A-Za-z0-9])?)([)\]}>,:;!?"'*_&`(\[{<#]*)(\.?)"""
)
_UNIT = re.compile(
    r"(?<=[0-9])(?:(?:[kdcm]?m)[²³]?|[km]?g|µg|[µn]m|km/h|m/s|ha|yd|in|ft|t|lb|oz|kmh|mph|h?Pa|mbar|[mkgt]b|[MKGT]B?|%|\+"
    r"|(?:US|C|A)?[$]|[£€¥฿₽﷼\u20a0-\u20bf])\Z"
)
_UNIT_ENDS = frozenset("m²³ga%dntbzhBMKGTrs+" + _CURRENCY)
_LONGEST_UNIT = 4
_PLAIN = frozenset(string.ascii_letters + string.digits)
_STAYS_AT_START = _PLAIN - set("UCA")
_STAYS_AT_END = _PLAIN - _UNIT_ENDS - {"s", "S"}
"""What nothing comes off from, which spares most pieces the longer look."""
_SCHEME = re.compile(r"[\w+.-]{2,}://")
_HOST_LETTER = r"[A-Za-z0-9\u00a1-\uffff]"
_HOST = re.compile(
    rf"(?:{_HOST_LETTER}(?:[A-Za-z0-9\u00a1-\uffff_-]{{0,62}}{_HOST_LETTER})?\.)+[^\W\d_A-Z]{{2,63}}(?::[0-9]{{2,5}})?"
    r"(?:[/?#]\S*)?"
)
_LONGEST_REJOINED = 3
_UNJOINED = " " * _LONGEST_REJOINED
"""Before the first word: too long to be joined with it."""
_USERS = 8
"""Signs @ in one piece after which a host is looked for."""


def split_piece(piece: str) -> list[str]:
    """The words of a piece of text without white space, in order. No character is lost."""
    if piece.isascii():
        return _split_ascii(piece)
    if not UNSPACED_CHARACTER.search(piece):
        return _split_accented(piece)
    words: list[str] = []
    for number, part in enumerate(UNSPACED_CHARACTER.split(piece)):
        # Every other part is such a character.
        if number % 2:
            words.append(part)
        elif part:
            words += _split_spaced(part)
    return words


def _split_ascii(piece: str) -> list[str]:
    """The shapes that most words of English have; all others go the long way, which would come out the same."""
    specials = special_pieces()
    if piece.isalpha():
        return list(specials.get(piece, (piece,)))
    if piece.isdigit() or len(piece) > LONG_PIECE:
        return [piece]
    shape = None if piece in specials else _SIGNS_AROUND.fullmatch(piece)
    if shape is None:
        return _split_spaced(piece)
    before, core, after, stop = shape.groups()
    if stop and not after:
        if core + stop in specials:
            return [*before, core + stop]
        if not _final_stop(piece):
            return _split_spaced(piece)
    if core not in specials:
        if core[-1] in _UNIT_ENDS and not core.isalpha():
            return _split_spaced(piece)
        if len(core) >= _LONGEST_REJOINED and len(before) < 2 and len(after) + len(stop) < 2:
            return [*before, core, *after, *stop]
    return _rejoined([*before, *specials.get(core, (core,)), *after, *stop], specials)


def _split_accented(piece: str) -> list[str]:
    """The shapes that most words with letters or signs beyond ASCII have; all others go the long way."""
    if piece.isalpha():
        return [piece]
    word, last = piece[:-1], piece[-1]
    if word.isalpha() and (last in ",;:!?)،؛»”" or (last == "." and _is_small(word[-1]))):
        return [*special_pieces().get(word, (word,)), last]
    return _split_spaced(piece)


def _split_spaced(piece: str) -> list[str]:
    if len(piece) > LONG_PIECE:
        return [piece]
    specials = special_pieces()
    before: list[str] = []
    after: list[str] = []
    # The edges, until nothing more comes off, or what is left is a known contraction or abbreviation.
    while piece and piece not in specials:
        start = 0 if piece[0] in _STAYS_AT_START else _prefix(piece)
        rest = piece[start:]
        if start:
            before.append(piece[:start])
            if rest in specials:
                piece = rest
                break
        end = 0 if rest[-1:] in _STAYS_AT_END else _suffix(rest)
        if end:
            after.append(rest[-end:])
            rest = rest[:-end]
        if not start and not end:
            break
        piece = rest
    if piece:
        if piece in specials:
            before.extend(specials[piece])
        elif _is_address(piece):
            before.append(piece)
        else:
            before.extend(_inside(piece))
    words = before + after[::-1]
    return _rejoined(words, specials) if len(words) > 1 else words


def _rejoined(words: list[str], specials: dict[str, tuple[str, ...]]) -> list[str]:
    """Words with neighbours that read like a face or an abbreviation put together again, as in ``(see below):``."""
    joined: list[str] = []
    last = _UNJOINED
    for word in words:
        if len(last) + len(word) <= _LONGEST_REJOINED and specials.get(last + word) == (last + word,):
            last += word
            joined[-1] = last
        else:
            last = word
            joined.append(word)
    return joined


def _prefix(piece: str) -> int:
    """Length of the sign at the start of a piece, 0 for none."""
    first = piece[0]
    if first.isalnum():
        return 3 if piece.startswith("US$") else 2 if piece.startswith(("C$", "A$")) else 0
    if first in _AT_START:
        return 1
    if first == ".":
        return _dots(piece) if piece.startswith("..") else 0
    if first == "+":
        return 0 if piece[1:2] in "0123456789" and len(piece) > 1 else 1
    return 1 if not first.isascii() and unicodedata.category(first) == "So" else 0


def _suffix(piece: str) -> int:
    """Length of the sign, unit or possessive at the end of a piece, 0 for none."""
    if not piece:
        return 0
    last = piece[-1]
    if last in _AT_END:
        return 2 if last == "…" and piece.endswith("……") else 1
    if last == ".":
        return _final_stop(piece)
    if last in "sS" and piece[-2:-1] in ("'", "’"):
        return 2
    if last in _UNIT_ENDS:
        if piece[-_LONGEST_UNIT - 1 :].isalpha():
            return 0
        unit = _UNIT.search(piece, max(0, len(piece) - 6))
        return len(piece) - unit.start() if unit else 0
    return 1 if not last.isascii() and unicodedata.category(last) == "So" else 0


def _final_stop(piece: str) -> int:
    if piece.endswith(".."):
        return _dots(piece[::-1])
    before = piece[-2:-1]
    if before in _BEFORE_STOP or _is_small(before):
        return 1 if before else 0
    return 1 if before.isupper() and piece[-3:-2].isupper() else 0


def _is_small(sign: str) -> bool:
    """Whether a sign is a letter, or a mark on one, that is no capital."""
    if sign.isascii():
        return sign.islower()
    return unicodedata.category(sign) in _SMALL


def _dots(piece: str) -> int:
    return len(piece) - len(piece.lstrip("."))


def _is_address(piece: str) -> bool:
    """Whether a piece reads as a host name with what may stand around it."""
    if "." not in piece:
        return False
    scheme = _SCHEME.match(piece)
    if _HOST.fullmatch(piece, scheme.end() if scheme else 0):
        return True
    at = 0
    for _ in range(_USERS):
        at = piece.find("@", at + 1)
        if at < 0:
            return False
        if _HOST.fullmatch(piece, at + 1):
            return True
    return False


def _inside(piece: str) -> list[str]:
    if not _MAY_SPLIT.search(piece):
        return [piece]
    words = [part for part in _INFIX.split(piece) if part]
    if piece.isascii() or not _MAYBE_ICON.search(piece):
        return words
    return [part for word in words for part in _icons(word)]


def _icons(word: str) -> list[str]:
    """A word cut at the pictures in it."""
    parts = [""]
    for sign in word:
        if not sign.isascii() and unicodedata.category(sign) == "So":
            parts.extend([sign, ""])
        else:
            parts[-1] += sign
    return [part for part in parts if part]
