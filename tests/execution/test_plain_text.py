"""Tokens and absolute paths are told from ordinary text by their form."""

from __future__ import annotations

import random
import string

import pytest

from marin.execution import Secret, UnstableValue, runtime
from marin.execution.plain_text import is_absolute_path, mask_tokens, token_in
from tests.execution.recipes import Config, identity, source, whatever

_DRAW = random.Random(17)


def _random(length: int) -> str:
    return "".join(_DRAW.choices(string.ascii_letters + string.digits, k=length))


TOKENS = {
    "Hugging Face": f"hf_{_random(34)}",
    "GitHub": f"ghp_{_random(36)}",
    "GitHub token": f"github_pat_{_random(22)}_{_random(59)}",
    "GitLab": f"glpat-{_random(20)}",
    "API key": f"sk-{_random(48)}",
    "an API key": f"sk-ant-api03-{_random(90)}AA",
    "AWS": "AKIA" + "".join(_DRAW.choices(string.ascii_uppercase + string.digits, k=16)),
    "Google API": f"AIza{_random(35)}",
    "Google access": f"ya29.{_random(60)}",
    "Slack": f"xoxb-123456789012-{_random(24)}",
    "JSON web": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLW9mLWl0",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n",
}
ORDINARY = [
    "sk-learn-logistic-regression-version-2",
    "task-something-with-a-long-name-that-goes-on-and-on-for-more-than-sixty-signs-2026",
    "the hf_transfer package of Hugging Face",
    "s3://bucket/a/long/path/with/many/parts/part-00000.warc.gz",
    "AKIA is how AWS access keys begin",
    "eyJ is how base64 of a JSON object begins",
    "3f2504e04f8911d39a0c0305e82c33013f2504e04f8911d39a0c0305e82c3301",
]


@pytest.mark.parametrize("kind", sorted(TOKENS))
def test_a_token_is_found_wherever_it_stands_in_a_text(kind: str) -> None:
    token = TOKENS[kind]
    for text in (token, f"Bearer {token}", f"https://me:{token}@host.invalid/x"):
        found = token_in(text)
        assert found is not None and kind in found
    first = token.splitlines()[0]
    assert first not in mask_tokens(f"--hub.token={token}")
    assert mask_tokens(f"--hub.token={token}").startswith("--hub.token=***")


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_no_token(text: str) -> None:
    assert token_in(text) is None
    assert mask_tokens(text) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_may_stand_in_a_config(text: str) -> None:
    assert identity(whatever(text))


@pytest.mark.parametrize(
    "text",
    [
        "/data",
        "/data/",
        "/home/me/data",
        "/data/my crawl",
        "/data/my crawl/x.warc.gz",
        "/my data/x.warc.gz",
        "~/data",
        "~/my data",
        "file:///data/x y",
        "C:\\data",
        "C:\\My Documents\\x",
        "D:/data/a b",
    ],
)
def test_an_absolute_path_is_one_with_spaces_too(text: str) -> None:
    assert is_absolute_path(text)
    with pytest.raises(UnstableValue, match=r"value = .* is an absolute path"):
        identity(whatever(text))


@pytest.mark.parametrize(
    "text",
    [
        "/",
        "//",
        "/a b",
        "/think about a/b tests",
        "/no_think Answer in one word.",
        "/ b",
        "a / b",
        "\n/\n",
        "/first line\n/second/line",
        "n/a",
        "text/html",
        "http://pages.invalid/a",
        "Q: what is in /etc/hosts?",
        "A:b",
        "",
    ],
)
def test_text_with_slashes_is_no_path(text: str) -> None:
    assert not is_absolute_path(text)
    assert identity(whatever(text))


@pytest.mark.parametrize("place", ["plain", "nested", "runtime"])
def test_a_token_in_a_config_is_refused_naming_the_field_and_not_the_token(place: str) -> None:
    token = TOKENS["Hugging Face"]
    target = {
        "plain": lambda: whatever(token),
        "nested": lambda: source(Config(anything={"inner": [0, f"Bearer {token}"]})),
        "runtime": lambda: source(Config(level=token)),
    }[place]()
    path = {"plain": "value", "nested": "config.anything.inner[1]", "runtime": "config.level"}[place]
    with pytest.raises(UnstableValue) as caught:
        identity(target)
    assert str(caught.value).partition(": ")[2].startswith(f"{path} ")
    assert "Hugging Face token" in str(caught.value)
    assert 'Secret("NAME_OF_A_VARIABLE")' in str(caught.value)
    assert token not in str(caught.value)


def test_neither_the_name_nor_the_value_of_a_secret_is_part_of_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_TOKEN", "a-value-of-a-secret")
    one = identity(source(Config(anything=Secret("ONE_TOKEN"))))
    assert one == identity(source(Config(anything=Secret("ANOTHER"))))
    monkeypatch.setenv("ONE_TOKEN", "another-value")
    assert one == identity(source(Config(anything=Secret("ONE_TOKEN"))))
    assert one != identity(source(Config(anything=None)))
    assert runtime(Secret("ONE_TOKEN"))
