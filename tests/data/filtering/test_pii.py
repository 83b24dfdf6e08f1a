"""Personal data: what is found, what is left, and that no text makes it slow."""

from __future__ import annotations

import ipaddress
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.filtering.features import measure
from marin.data.filtering.personal import PERSONAL_KINDS, PersonalData
from marin.data.filtering.pii import (
    EMAIL,
    IP_ADDRESS,
    IPV6_ADDRESS,
    KEY,
    PHONE,
    count_personal,
    mask,
    may_be_personal,
    treat,
)
from marin.data.filtering.words import WordTable

# Put together here, so that no scanner takes them for keys that leaked.
KEYS = (
    "AKIA" + "IOSFODNN7QZ2LRWT",
    "ghp_" + "a1B2" * 9,
    "xoxb-" + "123456789012-AbCdEf",
    "sk-" + "Ab3dE6gH9jK1mN4pQ7sT",
    "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0" + "." + "dozjgNryP4J3jVmNHl0w",
)


def test_addresses_are_masked_and_private_ones_left() -> None:
    masked = mask("Write to jane.doe+x@mail.example.org or ping 8.8.8.8, not 192.168.0.1 or 1.2.3.")
    assert masked.text == f"Write to {EMAIL} or ping {IP_ADDRESS}, not 192.168.0.1 or 1.2.3."
    assert (masked.emails, masked.ips) == (1, 1)
    assert mask("no address @ all").found == {"email": 0, "ip": 0}


def test_masking_finds_what_the_reference_patterns_find() -> None:
    from datatrove.pipeline.formatters.pii import PIIFormatter

    text = (
        "a@b.c x.y@z.org, <m@n.de> (q@[1.2.3.4]) @home foo@bar 93.184.216.34:80 end@of.line"
        " a..b@c.de .x@y.org x.@y.org tom&jerry@a-b.co.uk mailto:me@site.org,you@site.org x@y@z.com"
    )
    reference = PIIFormatter(email_replacement=EMAIL, ip_replacement=IP_ADDRESS)
    assert mask(text).text == reference.format(text)


@pytest.mark.parametrize(
    "address",
    [
        "2001:4860:4860::8888",
        "2606:4700:4700:0:0:0:0:1111",
        "2A02:8109:9ABC:1F00:9C9F:1234:ABCD:EF01",
        "2a00:1450:4001:81b::200e",
        "2600:1901:0:38d7::4",
        "2001:4860:4864::192.88.99.7",
    ],
)
def test_public_addresses_of_version_6_are_masked(address: str) -> None:
    assert ipaddress.IPv6Address(address).is_global
    for text in ("From {} at noon.", "{}", "[{}]:443", "at {}: it answers", "{}/64", "({}, {})", "<{}>"):
        masked = mask(text.format(address, address))
        assert masked.text == text.format(IPV6_ADDRESS, IPV6_ADDRESS)
        assert masked.found["ip"] == text.count("{}")
    assert count_personal(measure(f"seen from {address}.", WordTable()).suspects)["ip"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "std::vector<std::string> and abc::def::cafe, dead::beef",
        "at 12:34:56 on 2023:11:30 12:00:00 or 2023:11:30:10:20:30",
        "00:1B:44:11:3A:B7 and 20-01-0d-b8",
        "20:01:0d:b8:85:a3:00:00 is a GUID",
        "ff:ff::1 fe80::1 fc00::17 ::1 :: 2001:db8::8 2001:db8:1:2:3:4:5:6 3fff::1 3fff:0:1::1",
        "2024:: a note",
        "verse 2345:6 and 2345:6:7",
        "a2001:4860::8888 2001:4860::8888z x:2001:4860::8888 2001:4860:::8888 2001:4860:1:2:3:4:5:6:7",
        "2001:48600::8888",
        "ratio 2:3::4:6",
    ],
)
def test_times_hardware_addresses_scopes_and_private_addresses_are_left(text: str) -> None:
    assert mask(text).text == text
    assert count_personal(text)["ip"] == 0


def test_masking_finds_the_addresses_that_the_standard_library_calls_public() -> None:
    draw = random.Random(6)
    for _ in range(2000):
        groups = [f"{draw.getrandbits(16 if draw.random() < 0.6 else 4):x}" for _ in range(8)]
        address = ipaddress.IPv6Address(":".join([f"{draw.choice([0x2001, 0x2606, 0x2A00, 0xFE80]):04x}", *groups[1:]]))
        written = draw.choice([address.compressed, address.exploded, address.compressed.upper()])
        # Nobody holds all that begins with one group.
        public = address.is_global and written[4:6] != "::"
        assert mask(f"from {written}, he said").found["ip"] == public, written


@pytest.mark.parametrize(
    "number", ["+49 30 901820", "+1 (212) 664-7665", "(212) 664-7665", "212-664-7665", "212.664.7665", "+442079460018"]
)
def test_telephone_numbers_are_masked_where_asked(number: str) -> None:
    text = f"Call {number} today."
    assert mask(text).text == text
    assert mask(text, PERSONAL_KINDS).text == f"Call {PHONE} today."


@pytest.mark.parametrize(
    "text",
    [
        "In 1984-1985 it cost 212 664 7665.",
        "ISBN 978-3-16-148410-0",
        "a+1234567890",
        "3.141.592.653",
        "x-212-664-7665-9",
    ],
)
def test_other_numbers_are_no_telephone_numbers(text: str) -> None:
    assert count_personal(text)["phone"] == 0


@pytest.mark.parametrize("key", KEYS)
def test_access_keys_are_masked_where_asked(key: str) -> None:
    text = f'token = "{key}"'
    assert mask(text).text == text
    assert mask(text, PERSONAL_KINDS).text == f'token = "{KEY}"'


def test_a_private_key_goes_with_all_its_lines() -> None:
    label = "RSA PRIVATE" + " KEY"
    text = f"before\n-----BEGIN {label}-----\n" + "MIIEpAIBAAKCAQEA\n" * 20 + f"-----END {label}-----\nafter"
    masked = mask(text, ["key"])
    assert masked.text == f"before\n{KEY}\nafter"
    assert masked.found == {"key": 1}


@pytest.mark.parametrize(
    "text", ["sk-learn-contrib-lightning-and-more", "a gho_st", "AKIA", "hf_hub_download_everything_at_once"]
)
def test_names_that_begin_like_keys_are_left(text: str) -> None:
    assert mask(text, PERSONAL_KINDS).text == text


PIECES = st.sampled_from(
    [
        *KEYS,
        *("2001:4860:4860::8888", "2001:4860:", ":8888", "std::end"),
        *(
            "jane@example.org",
            "a@b",
            "8.8.8.8",
            "93.184.216.34",
            "10.0.0.1",
            "1.2.3",
            "version",
            "from",
            "+49",
            "30",
            "901820",
            "(212)",
            "664-7665",
        ),
        *(
            "212-664-7665",
            "word",
            "@",
            "x.y",
            "+1",
            "-----BEGIN",
            "-----END",
            "PRIVATE",
            "KEY-----",
            "\n",
            "\n\n",
            ", ",
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_the_lines_that_are_looked_at_hold_all_that_the_text_holds(text: str) -> None:
    lines = "\n".join(line.strip() for line in text.splitlines())
    assert count_personal(measure(text, WordTable()).suspects) == count_personal(lines)


@given(st.text(max_size=200))
def test_masking_twice_is_masking_once(text: str) -> None:
    once = mask(text, PERSONAL_KINDS).text
    assert mask(once, PERSONAL_KINDS).text == once


def test_every_kind_marks_its_pieces() -> None:
    for piece in ("a@b.c", "8.8.8.8", "[2606:4700::1111]", "+4930901820", "(212)", "664-7665", "-----BEGIN", *KEYS):
        assert may_be_personal(piece), piece
    for piece in ("word", "3.14", "2024-01-02", "self.x", "a-b"):
        assert not may_be_personal(piece), piece


def hostile(kind: str, size: int) -> str:
    """A text of about this many characters that makes a careless pattern slow."""
    unit = {
        "hyphens": "a-",
        "signs": "@",
        "short domains": "a@",
        "long labels": "a@" + "b" * 60 + "!",
        "dotted locals": "a.." * 20 + "@b.c",
        "dotted numbers": "1.2.",
        "addresses": "8.8.8.8, ",
        "versions": "version 8.8.8.8 (",
        "passwords": "redis://a:b",
        "bots": "123456:AA",
        "colons": "2001:",
        "long addresses": "2001:4860:1:2:3:4:5:6:",
        "plus signs": "+1 (22) 333-",
        "brackets": "(212) 66",
        "key marks": "sk-",
        "web tokens": "-eyJ",
        "key blocks": "-----BEGIN PRIVATE" + " KEY-----",
        "one word": "x",
        "digits": "7",
        "letters without spaces": "ก",
    }[kind]
    return unit * (size // len(unit)) + "@example.com"


@pytest.mark.parametrize(
    "kind",
    [
        *("hyphens", "signs", "short domains", "long labels", "dotted locals", "dotted numbers", "plus signs"),
        *("addresses", "versions", "passwords", "bots"),
        *("colons", "long addresses"),
        *("brackets", "key marks", "web tokens", "key blocks", "one word", "digits", "letters without spaces"),
    ],
)
def test_no_text_costs_more_than_its_length(kind: str) -> None:
    def cost(size: int) -> float:
        text = hostile(kind, size)
        found = []
        for _ in range(3):
            start = time.process_time()
            mask(text, PERSONAL_KINDS)
            measure(text, WordTable())
            found.append(time.process_time() - start)
        return min(found)

    small, large = cost(40_000), cost(320_000)
    # Eight times the text: the square would cost 64 times as much.
    assert large < 24 * small + 0.2


def test_masks_are_the_same_whatever_was_masked_before() -> None:
    texts = [f"mail {n}@example.org from 8.8.{n}.8" for n in range(20)]
    alone = [mask(text).text for text in texts]
    random.Random(0).shuffle(texts)
    assert sorted(mask(text).text for text in texts) == sorted(alone)


TEXT = f"Jane, jane@mail.org, host 8.8.8.8, (212) 664-7665, {KEYS[0]}"


def test_each_kind_is_masked_flagged_or_kept_as_the_policy_says() -> None:
    treated = treat(TEXT, PersonalData())
    assert treated.text == f"Jane, {EMAIL}, host {IP_ADDRESS}, (212) 664-7665, {KEY}"
    assert treated.masked == {"email": 1, "ip": 1, "key": 1}
    assert treated.flagged == {"phone": 1}
    other = treat(TEXT, PersonalData(email="flag", ip="keep", phone="mask", key="keep"))
    assert other.text == f"Jane, jane@mail.org, host 8.8.8.8, {PHONE}, {KEYS[0]}"
    assert (other.masked, other.flagged) == ({"phone": 1}, {"email": 1})
    nothing = treat("Nobody.", PersonalData(email="flag"))
    assert (nothing.text, nothing.masked, nothing.flagged) == ("Nobody.", {}, {})


def test_a_treatment_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"PersonalData.phone is 'drop'.*mask, flag, keep"):
        PersonalData(phone="drop")  # type: ignore[arg-type]
