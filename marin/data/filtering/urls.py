"""The URL rules of RefinedWeb and FineWeb, on the lists that ship with datatrove.

Penedo et al. 2023, https://arxiv.org/abs/2306.01116, appendix G.1. datatrove's own filter unpacks its 4.6 million
domains into a home folder and holds them all in the memory of every worker. Here the lists are read once for all
documents of a step, and only the domains that occur among them are kept.
"""

from __future__ import annotations

import functools
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from marin.data.filtering.config import UrlConfig

_WORD_BREAK = re.compile("[^a-zA-Z0-9]+")
_RESERVED = (".invalid", ".test", ".example", ".localhost")
_REMEMBERED_HOSTS = 1 << 16
_ARCHIVE = "url_filterblacklistsv0_3_0.tar.gz"


@dataclass(frozen=True)
class BlockedUrls:
    """What is blocked among a known set of URLs. Small, and pickles to the same bytes in every process.

    Attributes:
        domains: blocked domains and hosts that occur among the URLs, sorted, like all that follows.
        urls: blocked URLs that occur.
        words: words that a URL must not contain.
        soft_words: words that a URL must not contain ``soft_limit`` of.
        parts: character sequences that a URL without its signs must not contain.
        soft_limit: see ``soft_words``.
    """

    domains: tuple[str, ...]
    urls: tuple[str, ...]
    words: tuple[str, ...]
    soft_words: tuple[str, ...]
    parts: tuple[str, ...]
    soft_limit: int


class UrlJudge:
    """Says why a URL is dropped."""

    def __init__(self, blocked: BlockedUrls) -> None:
        self._domains = frozenset(blocked.domains)
        self._urls = frozenset(blocked.urls)
        self._words = frozenset(blocked.words)
        self._soft_words = frozenset(blocked.soft_words)
        self._parts = blocked.parts
        self._soft_limit = blocked.soft_limit

    def reason(self, url: str | None) -> str | None:
        """Why a URL is dropped, or None. A document without a URL passes."""
        if not url:
            return None
        host = host_of(url)
        if registered_domain(host) in self._domains:
            return "url_domain"
        if any(suffix in self._domains for suffix in _suffixes(host)):
            return "url_subdomain"
        if url in self._urls:
            return "url_listed"
        words = set(_WORD_BREAK.split(url))
        if not self._words.isdisjoint(words):
            return "url_banned_word"
        if len(self._soft_words & words) >= self._soft_limit:
            return "url_soft_words"
        squeezed = _WORD_BREAK.sub("", url).lower()
        if any(part in squeezed for part in self._parts):
            return "url_banned_part"
        return None


def blocked_urls(urls: Iterable[str], config: UrlConfig) -> BlockedUrls:
    """The rules for a set of URLs, after one pass over the lists.

    Args:
        urls: every URL that will be asked for.
        config: which lists apply.
    """
    # Names under a reserved suffix (RFC 2606) exist nowhere, so no list has them.
    urls = {url for url in urls if not host_of(url).endswith(_RESERVED)}
    hosts = {host_of(url) for url in urls}
    wanted = hosts | {registered_domain(host) for host in hosts}
    domains = set(config.domains)
    listed: set[str] = set()
    words: frozenset[str] = frozenset()
    soft_words: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()
    if config.integrated_lists:
        if urls:
            found = _listed({"domains": wanted, "urls": urls})
            domains, listed = domains | found["domains"], found["urls"]
        words, soft_words = _word_list("banned_words.txt"), _word_list("soft_banned_words.txt")
        parts = tuple(sorted(_word_list("banned_subwords.txt")))
    return BlockedUrls(
        domains=tuple(sorted(domains)),
        urls=tuple(sorted(listed)),
        words=tuple(sorted(words)),
        soft_words=tuple(sorted(soft_words)),
        parts=parts,
        soft_limit=config.soft_words,
    )


def host_of(url: str) -> str:
    """The host of a URL in lower case, without user, port and brackets; "" where there is none."""
    rest = url.partition("://")[2] or url
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0].rpartition("@")[2]
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].rstrip(".").lower()


@functools.lru_cache(maxsize=_REMEMBERED_HOSTS)
def registered_domain(host: str) -> str:
    """The part of a host that was registered under a public suffix; "" for an address or a bare suffix."""
    return str(_extractor()(host).top_domain_under_public_suffix)


@functools.cache
def _extractor() -> Any:
    from tldextract import TLDExtract

    # Only the list inside the package: no download, no cache folder.
    return TLDExtract(suffix_list_urls=(), cache_dir=None, fallback_to_snapshot=True)


def _suffixes(host: str) -> Iterable[str]:
    parts = host.split(".")
    return (".".join(parts[start:]) for start in range(len(parts)))


def _assets() -> Path:
    from datatrove.utils._import_utils import ASSETS_PATH

    return Path(ASSETS_PATH)


def _listed(wanted: dict[str, set[str]]) -> dict[str, set[str]]:
    """Which of the wanted entries the lists of these names inside the archive hold."""
    found: dict[str, set[str]] = {name: set() for name in wanted}
    with tarfile.open(_assets() / _ARCHIVE, "r|gz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name in wanted else None
            if stream is not None:
                entries = {entry.encode("utf-8", "replace") for entry in wanted[member.name] if entry}
                found[member.name] = {entry.decode() for entry in _common_lines(stream, entries)}
    return found


def _common_lines(stream: IO[bytes], wanted: set[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    rest = b""
    while block := stream.read(1 << 22):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        found |= wanted.intersection(lines)
    return found | wanted.intersection([rest])


def _word_list(name: str) -> frozenset[str]:
    lines = (_assets() / name).read_text(encoding="utf-8").splitlines()
    # A first sign # marks a comment there, words that are nothing but signs match nothing.
    words = (_WORD_BREAK.sub("", line).lower() for line in lines if line and not line.startswith("#"))
    return frozenset(word for word in words if word)
