"""A breadth-first crawl whose result does not depend on timing.

Each host has a queue of its own, in the order in which its links were found. Pages are taken in waves: one from each
queue in turn, fetched over a few connections at once, and followed in the order in which they were taken.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import quote, urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

from lxml import etree

from marin.data.crawl.fetch import USER_AGENT, Fetched, Fetcher

WAVE = 64
"""Pages in one wave. Part of what is crawled, unlike the number of connections."""

_PATH_CHARACTERS = "/%:@!$&'()*+,;=~-._"


@dataclass
class CrawlCounts:
    """What became of the links of a crawl."""

    pages: int = 0
    body_bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class Frontier:
    """Links that wait, one queue for each host in scope; every link is taken at most once."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._queues: dict[str, deque[str]] = {host: deque() for host in sorted(hosts)}
        self._seen: set[str] = set()
        self._turn = itertools.cycle(self._queues)

    def is_new(self, url: str) -> bool:
        """Whether a link is met for the first time; it is known from then on."""
        if url in self._seen:
            return False
        self._seen.add(url)
        return True

    def add(self, url: str) -> None:
        """Queue a link of a host in scope."""
        self._queues[urlsplit(url).netloc].append(url)

    def in_scope(self, url: str) -> bool:
        """Whether the link's host is crawled."""
        return urlsplit(url).netloc in self._queues

    def take(self, count: int) -> list[str]:
        """The next links, one from each host in turn."""
        wave: list[str] = []
        idle = 0
        while len(wave) < count and idle < len(self._queues):
            queue = self._queues[next(self._turn)]
            idle = 0 if queue else idle + 1
            if queue:
                wave.append(queue.popleft())
        return wave


def crawl(
    hosts: Iterable[str],
    fetcher: Fetcher,
    *,
    max_pages: int,
    max_bytes: int,
    max_page_bytes: int,
    connections: int,
    on_fetched: Callable[[Fetched], None],
    on_progress: Callable[[CrawlCounts], None] = lambda counts: None,
) -> CrawlCounts:
    """Crawl all hosts from their root pages, until a bound is reached or no link is left.

    ``on_fetched`` gets every exchange (robots.txt first) in a fixed order. An error status is an exchange like any
    other; only a server that does not answer ends the crawl.

    Raises:
        OSError: the server does not answer.
    """
    hosts = sorted(hosts)
    frontier = Frontier(hosts)
    counts = CrawlCounts()
    with ThreadPoolExecutor(max_workers=connections) as pool:
        robots = {}
        for host, fetched in zip(hosts, pool.map(fetcher.fetch, map(_robots_url, hosts)), strict=True):
            robots[host] = _robots(fetched)
            on_fetched(fetched)
        for root in (f"http://{host}/" for host in hosts):
            if frontier.is_new(root):
                frontier.add(root)
        while wave := frontier.take(min(WAVE, max_pages - counts.pages)):
            for fetched in pool.map(fetcher.fetch, wave):
                if len(fetched.body) > max_page_bytes:
                    counts.skipped["page_too_large"] += 1
                    continue
                if counts.pages and counts.body_bytes + len(fetched.body) > max_bytes:
                    counts.skipped["max_bytes"] += 1
                    return counts
                counts.pages += 1
                counts.body_bytes += len(fetched.body)
                on_fetched(fetched)
                _follow(fetched, frontier, robots, counts)
            on_progress(counts)
            if counts.pages >= max_pages:
                break
    return counts


def links(page: Fetched) -> Iterator[str]:
    """Absolute http links of an HTML page in document order, each once, without fragments, in one spelling."""
    try:
        tree = etree.fromstring(page.body, etree.HTMLParser(encoding="utf-8", huge_tree=True))
    except etree.ParseError:
        return
    if tree is None:
        return
    targets = dict.fromkeys(
        anchor.get("href", "").strip() for anchor in tree.iter("a") if "nofollow" not in anchor.get("rel", "").split()
    )
    urls = dict.fromkeys(_absolute(page.url, target) for target in targets if target)
    yield from (url for url in urls if url is not None)


def _absolute(base: str, target: str) -> str | None:
    try:
        parts = urlsplit(urldefrag(urljoin(base, target))[0])
    except ValueError:
        return None
    if parts.scheme != "http" or not parts.netloc:
        return None
    path = quote(parts.path or "/", safe=_PATH_CHARACTERS)
    query = f"?{quote(parts.query, safe=_PATH_CHARACTERS + '?')}" if parts.query else ""
    return f"http://{parts.netloc.lower()}{path}{query}"


def _follow(page: Fetched, frontier: Frontier, robots: dict[str, RobotFileParser], counts: CrawlCounts) -> None:
    if page.status != 200 or not page.is_html:
        return
    for url in links(page):
        if not frontier.is_new(url):
            continue
        if not frontier.in_scope(url):
            counts.skipped["out_of_scope"] += 1
        elif not robots[urlsplit(url).netloc].can_fetch(USER_AGENT, url):
            counts.skipped["robots"] += 1
        else:
            frontier.add(url)


def _robots_url(host: str) -> str:
    return f"http://{host}/robots.txt"


def _robots(fetched: Fetched) -> RobotFileParser:
    rules = RobotFileParser(fetched.url)
    if fetched.status == 200:
        rules.parse(fetched.body.decode("utf-8", "replace").splitlines())
    else:
        rules.parse([])
    return rules
