"""Graphs of the DAG benchmark as plain numbers, for our side and for every peer alike. Needs no package.

A graph of `steps` steps numbers them so that a step stands behind all that it needs:

- `lattice`: rows of ten; a step needs its neighbours straight above and above to the right;
- `chain`: each step needs the one before;
- `fan`: one root, then steps that need it, and one sink that needs the first ten of them.
"""

from __future__ import annotations

WIDTH = 10
CONFIG_BYTES = 300
SHAPES = ("lattice", "chain", "fan")

Config = dict[str, object]


def above(shape: str, number: int, steps: int) -> tuple[int, ...]:
    """The steps that a step needs."""
    if shape == "chain":
        return (number - 1,) if number else ()
    if shape == "fan":
        if number == 0:
            return ()
        return tuple(range(1, min(WIDTH, steps - 2) + 1)) if number == steps - 1 and steps > 2 else (0,)
    row, column = divmod(number, WIDTH)
    return () if row == 0 else tuple(sorted({(row - 1) * WIDTH + column, (row - 1) * WIDTH + (column + 1) % WIDTH}))


def last(shape: str, steps: int) -> tuple[int, ...]:
    """The steps that no other needs: the targets."""
    if shape == "lattice" and steps % WIDTH:
        raise ValueError(f"a lattice has whole rows: {steps} steps are no multiple of {WIDTH}")
    needed = {one for number in range(steps) for one in above(shape, number, steps)}
    return tuple(number for number in range(steps) if number not in needed)


def config(number: int, changed: int | None = None) -> Config:
    """The config of a step as plain values; that of the step `changed` differs in one of them.

    In canonical JSON (sorted keys, no spaces) it has `CONFIG_BYTES` bytes.
    """
    values: Config = {
        "number": number,
        "threshold": 0.85 if number == changed else 0.75,
        "languages": ["en", "de", "fr"],
        "rule": {"keep": True, "length": 128, "name": "repetition", "ratio": 0.25},
        "seed": 1_000_003,
        "source": "common-crawl",
        "suffix": "parquet",
    }
    size = len('{"comment":"","languages":["en","de","fr"],"number":,"rule":{"keep":true,"length":128,')
    size += len('"name":"repetition","ratio":0.25},"seed":1000003,"source":"common-crawl","suffix":"parquet",')
    size += len('"threshold":0.75}') + len(str(number))
    return {**values, "comment": "x" * (CONFIG_BYTES - size)}
