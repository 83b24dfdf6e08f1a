"""What lies behind an `External`: looked at before a step reads it, compared with what its version stood for earlier.

A step that used a version well leaves, create-only under `_externals/`, the size and a fingerprint of every file. Each
later use must see the same, and so must a look after the step has read it. A file's fingerprint is

- where the server tells one (S3, GCS, HTTP): its checksum, or else its ETag, generation or date of change;
- otherwise (local files): a digest over `BLOCKS` evenly spaced blocks of `BLOCK` bytes, the first and the last among
  them. A file of up to `BLOCK * BLOCKS` bytes is read whole. In a larger one a change that keeps the size and touches
  none of these blocks is not noticed. Of an HTTP server that tells neither, only sizes are compared.

A version and a file name stand for one content in a prefix, wherever it lies. On another address sizes and checksums
must agree; ETags and generations are each server's own, and count only against the same address.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import posixpath
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from marin.execution import layout
from marin.execution.failures import StepError
from marin.execution.fields import External
from marin.execution.running.unanswered import gave_no_answer
from marin.storage import AlreadyExists, Store, StoreUnavailable

T = TypeVar("T")

BLOCK = 32 << 10
BLOCKS = 16
PATTERN = re.compile(r"[*?\[]")
SHOWN = 3
THREADS = 16

CHECKSUMS = ("crc32c", "md5hash", "content-md5", "digest", "sha256")
"""What servers tell of a file that follows from its bytes alone, in lower case."""
MARKS = ("etag", "generation", "last-modified")
"""What servers tell of a file that changes when it is written, best first: the first that both looks have decides."""


@dataclass(frozen=True)
class Sighting:
    """One file as it was seen: its name below the place that was named, its size in bytes, and fingerprints.

    `content` holds digests that follow from the bytes; `place` marks that mean something at this address only.
    """

    name: str
    size: int | None
    content: dict[str, str] = dataclasses.field(default_factory=dict)
    place: dict[str, str] = dataclasses.field(default_factory=dict)

    def differs(self, other: Sighting, same_place: bool) -> bool:
        """Whether the two cannot be the same content."""
        if self.size is not None and other.size is not None and self.size != other.size:
            return True
        shared = self.content.keys() & other.content.keys()
        if shared:
            return any(self.content[kind] != other.content[kind] for kind in shared)
        marks = [kind for kind in MARKS if kind in self.place and kind in other.place] if same_place else []
        return any(self.place[kind] != other.place[kind] for kind in marks[:1])

    def __str__(self) -> str:
        size = "unknown size" if self.size is None else f"{self.size} bytes"
        return ", ".join([size, *(f"{kind} {value}" for kind, value in {**self.content, **self.place}.items())])


@dataclass(frozen=True)
class Sight:
    """All that lies behind an external input at one time, sorted by name.

    `urls` are the files' own addresses. `touched` says of local files when each was last written, for a look at the
    same place a little later.
    """

    field: str
    external: External
    address: str
    urls: tuple[str, ...]
    files: tuple[Sighting, ...]
    touched: tuple[str, ...]
    is_folder: bool = False

    @property
    def what(self) -> str:
        """The input in words."""
        return f"{self.field} = External({without_password(self.external.path)!r}, version={self.external.version!r})"


# --- looking ---


def see(field: str, external: External) -> Sight:
    """Look at an external input: a file, a folder with all below it, or all matches of a pattern.

    A path that is there is that file, whatever characters its name has.

    Raises:
        StepError: nothing lies there, or it cannot be reached.
        StoreUnavailable: the server gave no answer.
    """
    from fsspec.core import url_to_fs

    path = external.path

    def look() -> Sight:
        filesystem, stripped = url_to_fs(path, use_listings_cache=False)
        found, root = _behind(filesystem, path, stripped)
        # A name that ends in a slash is the mark that a console leaves for a folder.
        names = sorted(name for name, info in found.items() if info.get("type") != "directory" and name[-1:] != "/")
        if not names:
            raise StepError(
                f"{field}: nothing {'matches' if PATTERN.search(path) else 'lies below'} {path!r}; check it"
            )
        pairs = each(names, lambda name: _sighting(filesystem, name, root, found[name]))
        return Sight(
            field=field,
            external=external,
            address=without_password(filesystem.unstrip_protocol(stripped).removeprefix("file://")),
            urls=(path,) if names == [stripped] else tuple(filesystem.unstrip_protocol(name) for name in names),
            files=tuple(sighting for sighting, _ in pairs),
            touched=tuple(touched for _, touched in pairs),
            is_folder=root == stripped.rstrip("/") + "/",
        )

    return explained(look, path, field)


def _behind(filesystem: Any, path: str, stripped: str) -> tuple[dict[str, Mapping[str, Any]], str]:
    """What a file system tells of all that lies behind a path, and the folder below which its names begin."""
    if PATTERN.search(path) and not path.startswith(("http://", "https://")) and not filesystem.exists(stripped):
        return filesystem.glob(stripped, detail=True), pattern_root(stripped)
    info = filesystem.info(stripped)
    if info.get("type") == "directory":
        return filesystem.find(stripped, detail=True), stripped.rstrip("/") + "/"
    return {stripped: info}, stripped.rpartition("/")[0] + "/"


def see_file(field: str, path: str) -> Sighting:
    """Look at one file, by its path or URL as it is; raises as `see`."""
    from fsspec.core import url_to_fs

    def look() -> Sighting:
        filesystem, stripped = url_to_fs(path, use_listings_cache=False)
        info = filesystem.info(stripped)
        if info.get("type") == "directory":
            raise StepError(f"{field}: {path!r} is a folder; name its files, such as {path.rstrip('/')}/*")
        return _sighting(filesystem, stripped, stripped.rpartition("/")[0] + "/", info)[0]

    return explained(look, path, field)


def each(names: list[str], look: Callable[[str], T]) -> list[T]:
    """`look(name)` for every name, several at a time: each may wait for a server."""
    if len(names) == 1:
        return [look(names[0])]
    with ThreadPoolExecutor(min(THREADS, len(names))) as pool:
        return list(pool.map(look, names))


def pattern_root(pattern: str) -> str:
    """The folders before the first part of a pattern that is one."""
    parts = pattern.split("/")
    fixed = next(index for index, part in enumerate(parts) if PATTERN.search(part))
    return "".join(f"{part}/" for part in parts[:fixed])


def explained(look: Callable[[], T], path: str, field: str) -> T:
    """What `look` returns; whatever it raises becomes one message that names the field and the path."""
    try:
        return look()
    except (StepError, StoreUnavailable):
        raise
    except Exception as error:  # file systems have errors of their own
        text = f"{field}: {path!r} cannot be reached: {type(error).__name__}: {error}"
        if gave_no_answer(error):  # looked at first: over HTTP, fsspec takes every failure for a missing file
            raise StoreUnavailable(text) from error
        if isinstance(error, FileNotFoundError):
            text = f"{field}: there is no file {path!r}; check the path"
        raise StepError(text) from error


def _sighting(filesystem: Any, name: str, root: str, info: Mapping[str, Any]) -> tuple[Sighting, str]:
    """One file's sighting from what its file system tells, and when it was written where that is a local file."""
    told = {key.lower(): value for key, value in info.items() if isinstance(value, (str, int))}
    size = told.get("size")
    content = {kind: str(told[kind]) for kind in CHECKSUMS if told.get(kind)}
    place = {kind: mark_text(str(told[kind])) for kind in MARKS if told.get(kind)}
    touched = str(info.get("mtime", info.get("created", "")))
    if size is not None and not content and not place and not name.startswith(("http://", "https://")):
        with filesystem.open(name, "rb") as stream:
            content = {"sample": sample(stream, int(size))}
    return Sighting(name.removeprefix(root), None if size is None else int(size), content, place), touched


def mark_text(mark: str) -> str:
    """An ETag without quotes and the sign of weakness, which the same server may send or not."""
    return mark.removeprefix("W/").strip('"')


def sample(stream: BinaryIO, size: int) -> str:
    """A digest over evenly spaced blocks of a stream, the first and the last among them; over all of a small one."""
    digest = hashlib.sha256(str(size).encode())
    if size <= BLOCK * BLOCKS:
        digest.update(stream.read(size))
    else:
        for index in range(BLOCKS):
            stream.seek(index * (size - BLOCK) // (BLOCKS - 1))
            digest.update(stream.read(BLOCK))
    return digest.hexdigest()[:32]


def without_password(url: str) -> str:
    """An address without user and password."""
    parts = urllib.parse.urlsplit(url)
    return url.replace(f"{parts.netloc}", parts.netloc.rpartition("@")[2], 1) if "@" in parts.netloc else url


# --- comparing ---


def differences(first: Iterable[Sighting], now: Iterable[Sighting], same_place: bool) -> list[str]:
    """What a set of files has become, in words, one text a file."""
    before, after = ({file.name: file for file in files} for files in (first, now))
    changed = [
        f"{name} had {before[name]}, and has {after[name]}"
        for name in sorted(before.keys() & after.keys())
        if before[name].differs(after[name], same_place)
    ]
    gone = [f"{name} is gone" for name in sorted(before.keys() - after.keys())]
    joined = [f"{name} joined" for name in sorted(after.keys() - before.keys())]
    return changed + gone + joined


def listed(found: list[str]) -> str:
    """The first few of many, and how many more there are."""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def changes_since(before: Sight) -> str:
    """How an input differs from a look at the same place a moment ago, or an empty text; raises as `see`."""
    now = see(before.field, before.external)
    found = differences(before.files, now.files, same_place=True)
    if not found and now.touched != before.touched:
        pairs = zip(now.files, before.touched, now.touched, strict=True)
        found = [f"{file.name} was written" for file, old, new in pairs if old != new]
    if not found:
        return ""
    return f"{before.what} changed while the step read it: {listed(found)}; run again when it is at rest"


def stated_name(external: External) -> str:
    """What names the content together with the version: a file's or folder's name, or the pattern's own part."""
    path = external.path.partition("?")[0] if external.path.startswith(("http://", "https://")) else external.path
    match = PATTERN.search(path)
    if match is None:
        return posixpath.basename(path.rstrip("/")) or path
    return path[path.rfind("/", 0, match.start()) + 1 :]


def folder_of(version: str, name: str) -> str:
    """The folder of what was seen of a version."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{version}-{name}").strip("-")[:60]
    digest = hashlib.sha256(json.dumps([version, name]).encode()).hexdigest()
    return f"{layout.EXTERNALS}/{readable}-{layout.short(digest)}"


@dataclass(frozen=True)
class FirstUse:
    """What a prefix knows of versions of external inputs, for one step that uses some. `used_by` goes into messages."""

    store: Store
    used_by: Mapping[str, str]

    def compare(self, sight: Sight, name: str | None = None) -> bool:
        """Raise `StepError` when an earlier use saw something else; whether this address was used before.

        `name` stands for the path's own part.
        """
        folder, own = self._keys(sight, name)
        keys = [info.key for info in self.store.list(folder)]
        for key in [own] if own in keys else keys:
            self._compare(key, sight, same_place=key == own)
        return own in keys

    def remember(self, sight: Sight, name: str | None = None) -> None:
        """Keep what was seen, or raise `StepError` when another use was first and saw something else."""
        if self.compare(sight, name):
            return
        folder, own = self._keys(sight, name)
        body = {
            "version": sight.external.version,
            "address": sight.address,
            "used_by": dict(self.used_by),
            "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "files": [dataclasses.asdict(file) for file in sight.files],
        }
        try:
            self.store.create(own, json.dumps(body, ensure_ascii=False, indent=1).encode())
        except AlreadyExists:
            self._compare(own, sight, same_place=True)
        # Two first uses of two addresses see each other here, as each lists after it has created.
        for key in [info.key for info in self.store.list(folder) if info.key != own]:
            self._compare(key, sight, same_place=False)

    def _keys(self, sight: Sight, name: str | None) -> tuple[str, str]:
        folder = folder_of(sight.external.version, name or stated_name(sight.external))
        return folder, f"{folder}/{layout.short(hashlib.sha256(sight.address.encode()).hexdigest())}.json"

    def _compare(self, key: str, sight: Sight, same_place: bool) -> None:
        body = json.loads(self.store.read(key))
        found = differences([Sighting(**file) for file in body["files"]], sight.files, same_place)
        if found:
            who = ", ".join(f"{what} {name}" for what, name in body["used_by"].items())
            raise StepError(
                f"{sight.what} is not what this version stood for at an earlier use ({body['time']}, {who}): "
                f"at {body['address']} then, at {sight.address} now: {listed(found)}; if this is meant, give it a "
                "version that no other content has, otherwise put back what was there"
            )
