"""Public IP addresses in text: where they stand, told from version and section numbers.

Four numbers with dots between them are an address or a version ("SQLite 3.8.7.4", "9.2.4.1. Title"). What decides is
the number itself and at most 64 characters before and 48 behind it on its line, so that a line tells the same wherever
it stands and no text is slow. In this order:

1. A part of a longer number or name is none: more dots, a letter, a plus sign or a hyphen beside it.
2. Signs of an address beside it: ``//`` or ``@`` before, a port, prefix length, request or netmask behind, a host name
   before its bracket or, at the start of a line, behind it.
3. Signs of a version before it: a comparison (``>=``), a product and a slash.
4. The nearest word of either kind among the last five ("version", "section"; "server", "ping", "from").
5. A neighbour in a list decides for those behind it.
6. Else it is a version when all numbers are below 100 and the first is below 32, or behind the name of a product and at
   the start of a heading when it begins with small ones; anything else is an address.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterator

_BEFORE, _BEHIND = 64, 48
"""Characters that are looked at on either side of a number, on its line."""

# Begins with one sign: that is far cheaper to look for than any digit.
_TAIL = re.compile(r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9])")
_HEAD = re.compile(r"(?:^|[^0-9])([0-9]{1,3})$")
_LINE_BREAK = re.compile("[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")

_PART_BEFORE = re.compile(r"[0-9A-Za-z_+.-]$")
_NAMED_BEFORE = re.compile(r"(?:(?:^|[^A-Za-z])(?:ip|ipv4|IP|IPv4|host|addr|dns)[_-]?|\\[nrt])$")
_QUAD = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9])"
_PART_BEHIND = re.compile(rf"[A-Za-z_]|\.[0-9]|-(?!{_QUAD})[0-9A-Za-z]|[+~][0-9A-Za-z]")
_NAME_BEHIND = re.compile(r"\.[A-Za-z]")

# Names for reverse look-up, and what tcpdump prints: the port behind one more dot.
_MORE_DOTS = re.compile(r"\.in-addr\.arpa|\.[0-9]{1,5}(?: >|: Flags)", re.IGNORECASE)
_FILES = r"(?:py|js|sh|so|md|gz|rs|cc|pl|ps|am|ac|in)\b"
_DOMAINS = rf"(?:com|org|net|edu|gov|mil|info|local|lan|internal|google|(?!{_FILES})[a-z]{{2}})"
_HOST = rf"(?!asp\.net)[a-z0-9-]{{1,63}}\.{_DOMAINS}"
_ADDRESS_BEFORE = re.compile(rf"(?://|@\[?|(?:^|[\s.]){_HOST}\.?(?:[ ]\(?\[?|[\[(])|(?:\bIN|[0-9.])\s+A\s+)$")
_ADDRESS_BEHIND = re.compile(
    r":[0-9]{2,5}(?![0-9.:])|/(?:[89]|[12][0-9]|3[0-2])(?![\w./])|#[0-9]{1,5}(?![0-9])"
    r"|\s\(talk\b|\s+-\s+\S{1,20}\s+\[|\s+(?:netmask\s+)?255\.[0-9]|.{0,40}(?<![A-Za-z])(?:GET|POST|HEAD|CONNECT) /"
    r"|.{0,10}\[[0-9]{1,2}/[A-Z][a-z]{2}/[0-9]{4}"
)
_HOST_BEHIND = re.compile(rf"\s+(?:[a-z0-9-]{{1,63}}\.){{0,3}}{_HOST}(?![\w.])")
_VERSION_BEFORE = re.compile(r"(?:(?:[<>=!~]=|~>|[~^§])\s*|(?:^|[\s(\[;,\"'])[A-Za-z][A-Za-z0-9_.+-]{0,30}/)$")
_PRODUCT_BEFORE = re.compile(r"(?:^|[^\w-])[A-Z][A-Za-z0-9]{1,30} \(?$")
_LINE_START = re.compile(r"[\s#*>•§([-]*$")
_TITLE_BEHIND = re.compile(r"[.)]?\s+[A-Z]")
_RANGE_BEHIND = re.compile(r"\s+(?:to|through|until|onwards?)\b")
_NOUN_BEHIND = re.compile(
    r"(?:[ ,]{1,2}[a-z]{1,10}){0,2}[ (]{1,2}(?:ip|address|port|netmask|ttl|icmp_seq)\b", re.IGNORECASE
)
_LONG_BESIDE = re.compile(r"(?<![0-9A-Za-z])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2}")
_WORD = re.compile(r"IPs?(?![a-z])|[A-Z]{2,}(?![a-z])|[^\W\d_][^\W\d_A-Z]*")
_GAP = re.compile(r"\s*(?:[,;/|&–-]|,?\s*(?:and|or|to|und|oder|et|ou|y|e|o)\s)?\s*\(?")
_LONGEST_GAP = 8
_NEAR_WORDS, _WINDOW_WORDS = 5, 10

_OF_VERSIONS = (
    "v ver vers version versions versioned release releases released build builds revision rev patch patchlevel"
    " firmware driver kernel upgrade upgraded upgrades upgrading update updated updates updating since changelog"
    " assembly package section sections sect sec chapter chapters clause article appendix paragraph figure fig table"
    " step item requirement versión versionen versione versioni versão versie wersja версия версии versiones"
    " abschnitt kapitel sección capítulo sezione capitolo seção rozdział раздел глава chapitre"
)
_OF_ADDRESSES = (
    "ip ips ipv4 inet addr address addresses addrs adresse adresses adressen indirizzo dirección endereço адрес"
    " host hosts hostname rhost server servers gateway gateways router proxy firewall client clients peer nameserver"
    " nameservers resolver resolvers dns listen listening listener ping pinging ping4 traceroute tracert mtr ssh telnet"
    " nslookup dig whois nmap curl wget rsync scp netcat nc iptables src dst source destination dest saddr daddr"
    " connect connected connecting connection connections disconnected login logged bind bound via nexthop route"
    " subnet network netmask cidr attacker visitor received packet packets originating forwarded"
    " ban banned block blocked unban deny denied allow blacklist blacklisted whitelist"
    " anonymous contributions hosted resolving designates сервер сервера サーバー"
)
_VERSION_WORDS, _ADDRESS_WORDS = frozenset(_OF_VERSIONS.split()), frozenset(_OF_ADDRESSES.split())
_ROLES = frozenset(("server", "client", "router", "gateway", "proxy", "firewall", "host", "network"))
"""Words that are also the last of a product's name ("SQL Server 11.0.2.1")."""


def ipv4_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Where public addresses of version 4 stand."""
    last_end, last = -1, False
    for tail in _TAIL.finditer(text):
        dot, end = tail.span()
        head = _HEAD.search(text[max(0, dot - 4) : dot])
        if head is None:
            continue
        begin = dot - len(head[1])
        number = text[begin:end]
        octets = tuple(map(int, number.split(".")))
        if max(octets) > 255:
            continue
        gap = text[last_end:begin] if last_end >= 0 and begin - last_end <= _LONGEST_GAP else None
        carried = last if gap is not None and not _LINE_BREAK.search(gap) and _GAP.fullmatch(gap) else None
        before = _LINE_BREAK.split(text[max(0, begin - _BEFORE) : begin])[-1]
        behind = _LINE_BREAK.split(text[end : end + _BEHIND], maxsplit=1)[0]
        last_end, last = end, _is_address(octets, before, behind, carried)
        if last and is_public(number):
            yield begin, end


@functools.lru_cache(maxsize=1 << 14)
def is_public(address: str) -> bool:
    """Whether it is well formed and reached from everywhere (IANA's registries of special addresses)."""
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


def _is_address(octets: tuple[int, ...], before: str, behind: str, carried: bool | None) -> bool:
    """What four numbers are, by what stands around them on their line and by the neighbour in a list."""
    if _MORE_DOTS.match(behind):
        return True
    in_range = carried is not None and before.endswith("-")
    if not in_range and _PART_BEFORE.search(before) and not _NAMED_BEFORE.search(before):
        return False
    small = max(octets) < 100 and octets[0] < 32
    if _PART_BEHIND.match(behind) or (small and _NAME_BEHIND.match(behind)):
        return False
    starts = _LINE_START.match(before) is not None
    if _ADDRESS_BEFORE.search(before) or _ADDRESS_BEHIND.match(behind) or (starts and _HOST_BEHIND.match(behind)):
        return True
    if _VERSION_BEFORE.search(before) and octets[0] < 100:
        return False
    begins_small = octets[0] < 32 and octets[1] < 20
    told = None if in_range else _told_by_words(before, behind, small, small or begins_small)
    if told is None and carried is not None and (carried or octets[0] < 100):
        told = carried
    if told is not None:
        return told
    if small:
        noun = not starts and _NOUN_BEHIND.match(behind)
        return bool(_NAMED_BEFORE.search(before) or noun or _LONG_BESIDE.search(before) or _LONG_BESIDE.search(behind))
    title = starts and octets[2] < 32 and _TITLE_BEHIND.match(behind)
    return not (begins_small and (title or _PRODUCT_BEFORE.search(before)))


def _told_by_words(before: str, behind: str, small: bool, version_like: bool) -> bool | None:
    """What the nearest word before it says that is of either kind."""
    # What stands before a bracket says nothing of the words in it: "by ssh (see 9.2.1.4)".
    inside = before.rpartition("(")[2]
    words = _WORD.findall(inside if _WORD.search(inside) else before)[-_WINDOW_WORDS:]
    lowered = [word.lower() for word in words]
    for distance, word in enumerate(reversed(lowered[-_NEAR_WORDS:])):
        if word in _VERSION_WORDS:
            # A number that does not look like a version needs the word close by.
            return False if small or (distance < 2 and "{" not in before) else None
        if word in _ADDRESS_WORDS:
            at = len(words) - 1 - distance
            product = word in _ROLES and at > 0 and lowered[at - 1] not in _ADDRESS_WORDS
            product = product and words[at][0].isupper() and words[at - 1][0].isupper()
            return not (version_like and not distance and product)
        if word == "from" and not distance:
            versioned = not _VERSION_WORDS.isdisjoint(lowered) or _RANGE_BEHIND.match(behind)
            if not versioned:
                return True
    return None
