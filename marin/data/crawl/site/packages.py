"""The explicit list of what the embedded site documents: nothing else that is installed counts."""

from __future__ import annotations

STDLIB = "python"
"""Name of the standard library among the packages; its version is that of the interpreter."""

PACKAGES = (
    "datasets",
    "datatrove",
    "draccus",
    "fasteners",
    "fsspec",
    "ftfy",
    "gcsfs",
    "inscriptis",
    "jinja2",
    "lm-eval",
    "nltk",
    "numpy",
    "psutil",
    "pyarrow",
    "ray",
    "regex",
    "resiliparse",
    "rich",
    "s3fs",
    "safetensors",
    "scikit-learn",
    "scipy",
    "spacy",
    "tensorboard",
    "tldextract",
    "tokenizers",
    "torch",
    "trafilatura",
    "warcio",
    "zstandard",
)
"""Dependencies of the project with the most documentation in them."""

STDLIB_MODULES = (
    "__future__", "_collections_abc", "_pydecimal", "_pyio", "abc", "argparse", "ast", "asyncio", "base64", "bdb",
    "bisect", "bz2", "calendar", "cmd", "code", "codecs", "collections", "compileall", "concurrent", "configparser",
    "contextlib", "contextvars", "copy", "copyreg", "csv", "ctypes", "dataclasses", "datetime", "difflib", "dis",
    "doctest", "email", "enum", "filecmp", "fileinput", "fnmatch", "fractions", "ftplib", "functools", "getopt",
    "getpass", "gettext", "glob", "graphlib", "gzip", "hashlib", "heapq", "hmac", "html", "http", "imaplib",
    "importlib", "inspect", "io", "ipaddress", "json", "keyword", "linecache", "locale", "logging", "lzma",
    "mailbox", "mimetypes", "multiprocessing", "netrc", "numbers", "opcode", "operator", "optparse", "os",
    "pathlib", "pdb", "pickle", "pickletools", "pkgutil", "platform", "plistlib", "poplib", "pprint", "profile",
    "pstats", "py_compile", "pyclbr", "pydoc", "queue", "quopri", "random", "reprlib", "runpy", "sched",
    "selectors", "shelve", "shlex", "shutil", "signal", "site", "smtplib", "socket", "socketserver", "sqlite3",
    "ssl", "stat", "statistics", "string", "stringprep", "subprocess", "symtable", "tabnanny", "tarfile",
    "tempfile", "textwrap", "threading", "timeit", "token", "tokenize", "tomllib", "trace", "traceback",
    "tracemalloc", "types", "typing", "unittest", "urllib", "uuid", "venv", "warnings", "wave", "weakref",
    "webbrowser", "wsgiref", "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zoneinfo",
)  # fmt: skip
"""Modules and packages of the standard library that every installation has."""
