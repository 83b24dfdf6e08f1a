"""Addresses are told from version and section numbers by the line that they stand in."""

from __future__ import annotations

import ipaddress
import random

import pytest

from marin.data.filtering.features import measure
from marin.data.filtering.pii import IP_ADDRESS, count_personal, mask
from marin.data.filtering.words import WordTable

# What says address, whatever the number: a sign or a word beside it.
TELLING = (
    '{} - - [10/Oct/2023:13:55:36 +0000] "GET /index.html HTTP/1.1" 200 2326',
    "www.falcot.com {} - - [27/Nov/2004:13:33:34 +0100]",
    "sshd[2211]: Failed password for root from {} port 52211 ssh2",
    "postfix/smtpd[121]: disconnect from mail.example.org[{}]",
    "Received: from mail.example.com (mail.example.com [{}]) by mx.example.org",
    "v=spf1 ip4:{} include:_spf.example.net ~all",
    "{} web01.example.com web01",
    "mail.example.org. 3600 IN A {}",
    "PING example.com ({}) 56(84) bytes of data.",
    "64 bytes from {}: icmp_seq=1 ttl=56 time=11.6 ms",
    ";; SERVER: {}#53",
    "ftp://{}/srv",
    "ssh -p 2222 {}",
    "curl http://{}/status",
    "proxy_pass {}:8080;",
    "nameserver {}",
    "bind-address = {}",
    '"remoteAddr":"{}"',
    "inet {}/24 scope global eth0",
    "IN=eth0 SRC={} LEN=60",
    "17:01:22.1 IP {}.443 > 192.168.0.7.51234: Flags [S]",
    "Our server's IP address is {}.",
    "Traffic from {}, {} and {} was blocked.",
    "La dirección IP es {}.",
    "服务器的IP地址是{}。",
    "{}.in-addr.arpa",
    "via {} dev eth0",
    "{}\t255.255.255.0",
)
# What says nothing: only a number that looks like no version is an address there.
BARE = ("I saw {} again.", "* {}", "{}", "User {} edited this page.", "| {} | DE |", "({})", '"{}",', "a; {}; b")
VERSIONS = (
    "SQLite version {} was released.",
    "{}. The Key Format",
    "{} Pagination",
    "see section {} of the manual",
    "§ {}",
    "by ssh (see {}, “Encrypted Tunnels”)",
    "Firefox {} and later",
    "foo-{}.tar.gz",
    "libfoo-{}-1_amd64.deb",
    "Mozilla/5.0 Chrome/{} Safari",
    "foo>={}",
    "foo=={}",
    "v{}",
    "Versions {}, {} and {}",
    "from {} to {}",
    "SQL Server {}",
    "- {} (2014-01-02)",
    "## [{}] - 2015-01-01",
    '"version": "{}"',
    "router firmware {}",
    "Table {}: hosts and servers",
    "{}: IP addresses",
)


TABLE = WordTable()


def found(text: str) -> int:
    """Addresses in a text, which its lines alone must tell too."""
    count = mask(text).found["ip"]
    assert count_personal(measure(f"A title\n\n  {text} \nserver", TABLE).suspects)["ip"] == count
    return count


def public(draw: random.Random, version_like: bool) -> str:
    while True:
        octets = [draw.randrange(256) for _ in range(4)]
        if version_like:
            octets = [draw.randrange(1, 32), *(draw.randrange(100) for _ in range(3))]
        elif octets[0] < 32:
            continue
        address = ipaddress.IPv4Address(bytes(octets))
        if address.is_global and not address.is_multicast:
            return str(address)


def filled(pattern: str, draw: random.Random, version_like: bool) -> str:
    return pattern.format(*(public(draw, version_like) for _ in range(pattern.count("{}"))))


@pytest.mark.parametrize("pattern", TELLING)
def test_what_stands_beside_an_address_tells_it_whatever_its_numbers(pattern: str) -> None:
    draw = random.Random(pattern)
    for at in range(4):
        text = filled(pattern, draw, version_like=at % 2 == 0)
        assert found(text) == pattern.count("{}"), text


@pytest.mark.parametrize("pattern", BARE)
def test_numbers_that_look_like_no_version_need_nothing_beside_them(pattern: str) -> None:
    draw = random.Random(pattern)
    for _ in range(4):
        assert found(filled(pattern, draw, version_like=False)) == 1
        assert found(filled(pattern, draw, version_like=True)) == 0


@pytest.mark.parametrize("pattern", VERSIONS)
def test_version_and_section_numbers_are_left(pattern: str) -> None:
    draw = random.Random(pattern)
    for _ in range(6):
        text = filled(pattern, draw, version_like=True)
        assert found(text) == 0, text


@pytest.mark.parametrize(
    "text",
    [
        "Call +33.1.23.45.67.89",
        "Call +193.184.216.34",
        "OID 1.3.6.1.4.1.311",
        "93.184.216.34.5",
        "7.93.184.216.34",
        "part 93.184.216.34-77",
        "part 77-93.184.216.34",
        "x93.184.216.34",
        "93.184.216.34x",
        "1193.184.216.34",
        "93.184.216.3400",
        "93.184.216.334",
        "version 10.3.183.90",
        "Flash Player 10.3.183.90",
        "version 10.3.183.90, 10.3.183.91 and 11.2.202.235",
    ],
)
def test_parts_of_longer_numbers_and_versions_with_large_numbers_are_left(text: str) -> None:
    assert found(text) == 0


def test_a_neighbour_in_a_list_and_the_nearest_word_decide() -> None:
    assert found("SQLite version 3.8.7.4 runs on the server 8.8.8.8") == 1
    assert mask("hosts 93.184.216.34, 8.8.4.4 or 9.9.9.9").text.count(IP_ADDRESS) == 3
    assert mask("93.184.216.34-93.184.216.40").text == f"{IP_ADDRESS}-{IP_ADDRESS}"
    assert found("allow-update { 127.0.0.1 192.168.0.1 93.184.216.34 };") == 1
    # Lines tell of themselves alone.
    assert mask("the server\n9.2.4.1\nversion\n93.184.216.34").text == f"the server\n9.2.4.1\nversion\n{IP_ADDRESS}"
