"""`marin show`: one step's record for people."""

from __future__ import annotations

import json
import time

from marin.execution import layout
from marin.execution.reasons.selection import find_record
from marin.execution.running.console import number
from marin.storage import Store


def show(store: Store, what: str) -> int:
    """Print one step's record."""
    record = find_record(store, what)
    print(f"{record.display}\n  identity    {record.identity}\n  version     {record.version}")
    print(f"  generation  {record.generation}\n  lies in     {store.url_of(record.path)}")
    for name, value in record.provenance.items():
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) if name in ("started", "finished") else value
        print(f"  {name:<11} {shown}")
    print(f"  code        {record.code_digest}\n  output      {record.output_digest}")
    for dependency in record.dependencies:
        print(f"  upstream    {dependency.path}: {dependency.name}-{layout.short(dependency.identity)}")
    for flow in record.flows:
        dropped = ", ".join(
            f"{reason} {count}" for reason, count in sorted(flow.dropped.items(), key=lambda one: -one[1])
        )
        print(f"  {flow.unit:<11} read {flow.read}, kept {flow.kept}{f', dropped: {dropped}' if dropped else ''}")
    for remark in record.remarks:
        print(f"  remark      {remark}")
    print("  config")
    print(_indented(json.dumps(record.recipe["config"], indent=2, ensure_ascii=False), 4))
    print("  result")
    print(_indented(json.dumps(record.result, indent=2, ensure_ascii=False), 4))
    print(f"  files ({len(record.files)}, {number(record.size)}B)")
    for file in record.files:
        print(f"    {file.size:>12}  {file.name}")
    return 0


def _indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in text.splitlines())
