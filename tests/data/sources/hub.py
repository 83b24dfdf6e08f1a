"""What a dataset on the Hugging Face hub looks like to its client, for a server on loopback."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HEADERS = {"X-Repo-Commit": "0123456789abcdef0123456789abcdef01234567", "X-Error-Code": "EntryNotFound"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hub_files(name: str, shards: dict[str, list[dict[str, Any]]]) -> dict[str, bytes]:
    """Answers of a hub, by path, for a dataset of parquet files."""
    answers: dict[str, bytes] = {}
    listing = []
    for path, rows in shards.items():
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), out)
        answers[f"/datasets/{name}/resolve/{COMMIT}/{path}"] = out.getvalue()
        listing.append({"type": "file", "path": path, "size": len(out.getvalue()), "oid": f"{len(listing):040x}"})
    about = {"_id": "1", "id": name, "sha": COMMIT, "private": False, "gated": False, "disabled": False, "tags": []}
    about |= {"siblings": [{"rfilename": one["path"]} for one in listing], "downloads": 0, "likes": 0}
    for revision in (COMMIT, "main"):
        answers[f"/api/datasets/{name}/revision/{revision}"] = json.dumps(about).encode()
        folder = {"type": "directory", "path": "data", "size": 0, "oid": "0" * 40}
        answers[f"/api/datasets/{name}/tree/{revision}"] = json.dumps([folder, *listing]).encode()
        answers[f"/api/datasets/{name}/tree/{revision}/data"] = json.dumps(listing).encode()
    answers[f"/api/datasets/{name}"] = json.dumps(about).encode()
    return answers
