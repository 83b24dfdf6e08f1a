"""Text that must not stand in a config as it is: access tokens, and absolute paths."""

from __future__ import annotations

import re

SHORTEST_TOKEN = 20
"""Characters. No kind of token below is shorter, so shorter texts, which most are, are not looked at."""

_KINDS = {
    "a Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "a GitHub token": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}",
    "a GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    "an API key": r"sk-(?:[a-z0-9]+-){0,3}(?:[A-Za-z0-9_]{20,}|[A-Za-z0-9_-]{60,})",
    "an AWS access key": r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    "a Google API key": r"AIza[A-Za-z0-9_-]{35}",
    "a Google access token": r"ya29\.[A-Za-z0-9_-]{20,}",
    "a Slack token": r"xox[abeprs]-[A-Za-z0-9-]{15,}",
    "a PyPI token": r"pypi-AgE[A-Za-z0-9_-]{50,}",
    "an npm token": r"npm_[A-Za-z0-9]{36,}",
    "a JSON web token": r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}
_BEGINNINGS = (
    ("_", ("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "npm_")),
    ("-", ("glpat-", "sk-", "xox", "pypi-", "PRIVATE KEY")),
    ("A", ("AKIA", "ASIA", "AIza")),
    ("ya29.", ("ya29.",)),
    ("eyJ", ("eyJ",)),
)
_TOKEN = re.compile("|".join(_KINDS.values()))
_SINGLE = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}

_ABSOLUTE = re.compile(
    r"""
    /[^/\s]+/[^/\n]*\S.*            # two folders deep at least: /data/crawl, /data/my crawl/x
    | /[^/\s]*[\w.][^/\s]*/?        # one word alone: /data, but not the words of "/a b"
    | /[^/\n]+/[^\n]*\.\w{1,8}      # a folder whose name has spaces, and a file with a suffix: /my data/x.gz
    | ~/[^\n]*\S
    | file://[^\n]*\S
    | [A-Za-z]:\\[^\n]*\S
    | [A-Za-z]:/\S*[\w.][^\n]*
    """,
    re.VERBOSE,
)


def token_in(text: str) -> str | None:
    """What kind of access token a text holds, or None. By form alone: nothing is asked anywhere."""
    if len(text) < SHORTEST_TOKEN or not _may_hold_token(text):
        return None
    found = next((match.group() for match in _TOKEN.finditer(text) if _stands_alone(match)), None)
    return next((kind for kind, pattern in _SINGLE.items() if found is not None and pattern.match(found)), None)


def _may_hold_token(text: str) -> bool:
    """A quick look for how tokens begin: plans of ten thousand steps pass all their texts through here."""
    for sign, beginnings in _BEGINNINGS:
        if sign in text:
            for beginning in beginnings:
                if beginning in text:
                    return True
    return False


def _stands_alone(match: re.Match[str]) -> bool:
    """Whether a match begins and ends like a word, so that `task-…` holds no `sk-…`."""
    around = match.string[max(0, match.start() - 1) : match.start()] + match.string[match.end() : match.end() + 1]
    return not any(sign.isalnum() for sign in around)


def mask_tokens(text: str) -> str:
    """The text without access tokens, for what is kept of a command line."""
    return _TOKEN.sub(lambda match: "***" if _stands_alone(match) else match.group(), text)


def is_absolute_path(text: str) -> bool:
    """Whether a whole text is an absolute path: one line, and not mere words after a slash, as `/think about it` is."""
    if text[:1] not in ("/", "~") and text[1:2] != ":" and text[:5] != "file:":
        return False
    return _ABSOLUTE.fullmatch(text) is not None
