"""Templates of the pages and cards that steps leave beside their output: one environment, one style.

Imports jinja2; import this module inside step bodies only.
"""

from __future__ import annotations

import functools
from importlib.resources import files

import jinja2


@functools.cache
def template(package: str, name: str) -> jinja2.Template:
    """A template that lies in a package; of an `.html` all text is escaped. `page.css` can be included.

    Filters: `number` with thousands, `size` of bytes, `cell` for a text from outside in a Markdown table.

    Args:
        package: the package, such as ``"marin.data.dedup"``.
        name: path of the file below it.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("marin.data.documents", "templates"),
        autoescape=name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = "{:,}".format
    environment.filters["size"] = size
    environment.filters["cell"] = _markdown_cell
    return environment.from_string(files(package).joinpath(name).read_text(encoding="utf-8"))


def size(count: int) -> str:
    """A number of bytes for people."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _markdown_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/").replace("<", "&lt;")
