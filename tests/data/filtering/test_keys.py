"""Keys that services publish the form of are found; placeholders and examples are left."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

import pytest

from marin.data.filtering.features import measure
from marin.data.filtering.personal import PERSONAL_KINDS
from marin.data.filtering.pii import KEY, count_personal, mask
from marin.data.filtering.words import WordTable

SMALL, DIGITS, HEX = string.ascii_lowercase, string.digits, "0123456789abcdef"
ALPHANUMERIC = string.ascii_letters + DIGITS
URL, BASE64, BASE32 = ALPHANUMERIC + "_-", ALPHANUMERIC + "+/", string.ascii_uppercase + "234567"

Draw = Callable[..., str]


TABLE = WordTable()


# Marks are put together here, so that no scanner takes these for keys that leaked.
def samples(d: Draw) -> dict[str, tuple[str, str]]:
    """A key of each kind, and the text around it with braces in its place."""
    numbers = "-".join(d(12, DIGITS) for _ in range(3))
    alone = {
        "aws": "AKIA" + d(16, BASE32),
        "aws session": "ASIA" + d(16, BASE32),
        **{f"github {kind}": f"gh{kind}_" + d(36) for kind in "oprsu"},
        "github pat": "github_pat_" + d(22) + "_" + d(59),
        "gitlab": "glpat-" + d(20, URL),
        "slack user": f"xoxp-{numbers}-" + d(32, HEX),
        "slack bot": f"xoxb-{numbers[:25]}-" + d(24, SMALL + DIGITS),
        "slack config": f"xoxa-2-{numbers}-" + d(32, HEX),
        "slack refresh": "xoxe-1-" + d(146),
        "slack app": f"xapp-1-A{d(10, BASE32)}-{d(13, DIGITS)}-" + d(64, HEX),
        "stripe": "sk_live_" + d(24),
        "stripe restricted": "rk_live_" + d(24),
        "google": "AIzaSy" + d(33, URL),
        "openai": "sk-" + d(48),
        "openai project": "sk-proj-" + d(74, URL),
        "hex": "sk-" + d(32, HEX),
        "anthropic": "sk-ant-api03-" + d(93, URL) + "AA",
        "hugging face": "hf_" + d(34, string.ascii_letters),
        "npm": "npm_" + d(36),
        "pypi": "pypi-AgEIcHlwaS5vcmc" + d(120, URL),
        "sendgrid": "SG." + d(22, URL) + "." + d(43, URL),
        "twilio": "SK" + d(32, HEX),
        "telegram": d(10, DIGITS) + ":AA" + d(33, URL),
        "token": "eyJ" + d(33) + ".eyJ" + d(60) + "." + d(43, URL),
    }
    beside = {
        "aws secret": (d(40, BASE64), "aws_secret_access_key = {}"),
        "aws secret in json": (d(40, BASE64), '"SecretAccessKey": "{}"'),
        "azure storage": (d(86, BASE64) + "==", "AccountName=a;AccountKey={};EndpointSuffix=core.windows.net"),
        "azure bus": (d(43, BASE64) + "=", "SharedAccessKeyName=Root;SharedAccessKey={}"),
        "postgres": (f"app:{d(14)}@db.acme.io", "postgres://{}:5432/prod"),
        "mysql": (f"root:{d(10)}@10.0.0.5", "mysql+pymysql://{}/shop"),
        "mongodb": (f"svc:{d(16)}@c0.mongodb.net", "mongodb+srv://{}/x"),
        "redis": (f":{d(16)}@cache", "redis://{}:6379/0"),
        "ado": (d(14), "Server=tcp:db.acme.io,1433;User ID=sa;Password={};Encrypt=true;"),
    }
    return {name: (key, "{}") for name, key in alone.items()} | beside


def drawn(seed: object) -> dict[str, tuple[str, str]]:
    draw = random.Random(str(seed))
    return samples(lambda size, signs=ALPHANUMERIC: "".join(draw.choice(signs) for _ in range(size)))


@pytest.mark.parametrize("kind", drawn(0))
def test_keys_of_each_service_are_masked_and_counted(kind: str) -> None:
    for seed in range(6):
        key, around = drawn(seed)[kind]
        text = f"token: {around.format(key)} and more"
        assert mask(text, PERSONAL_KINDS).text == f"token: {around.format(KEY)} and more"
        assert count_personal(measure(f"A title\n\n {text}\nend", TABLE).suspects)["key"] == 1


@pytest.mark.parametrize("label", ["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ", "PGP"])
def test_blocks_of_private_keys_go_whole(label: str) -> None:
    name = "PGP PRIVATE" + " KEY BLOCK" if label == "PGP" else f"{label}PRIVATE" + " KEY"
    assert mask(f"a\n-----BEGIN {name}-----\nMIIE\n-----END {name}-----\nb", ["key"]).text == f"a\n{KEY}\nb"


@pytest.mark.parametrize(
    "text",
    [
        *("xoxb-your-token-here", "xoxp-your-slack-token-123", "xoxb-000000000000-000000000000"),
        "xoxb-xxxxxxxxxxxx-xxxxxxxxxxxx-xxxxxxxxxxxxxxxxxxxxxxxx",
        *("sk-" + "x" * 32, "sk-...", "sk-your-api-key-goes-in-Here-1", "sk-proj-YOUR_API_KEY_HERE_12"),
        *(
            "AKIAIOSFODNN7EXAMPLE",
            "AKIA" + "X" * 16,
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        ),
        *("AWS_SECRET_ACCESS_KEY=${AWS_SECRET_ACCESS_KEY}", "ghp_" + "x" * 36, "ghp_" + "0" * 36),
        *("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "glpat-your-personal-access-token", "glpat-" + "x" * 20),
        *("glpat-some-name-with-hyphens-only", "sk_live_" + "x" * 24, "task_live_abcdefABCDEF0123456789"),
        *("AIza" + "X" * 35, "hf_hub_download_everything_at_once", "hf_" + "x" * 34, "npm_config_registry"),
        *("pypi-AgEIcHlwaS5vcmc...", "SK" + "a" * 32, "123456789:AAyour-token", "SG.xxxxxxxxxxxxxxxxxxxx." + "y" * 43),
        "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
        *("postgres://user:password@localhost/db", "postgresql://postgres:postgres@localhost/x"),
        *("mysql://{user}:{password}@{host}/db", "postgres://user:$PASSWORD@host/db", "redis://localhost:6379/0"),
        *("Password=yourpassword;", "Password=$PASSWORD;", "AccountKey=<your key>;", "PWD=/home/me/project1;"),
    ],
)
def test_placeholders_and_examples_are_left(text: str) -> None:
    assert mask(text, ["key"]).text == text
