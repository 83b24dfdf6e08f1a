"""Planning a graph with this room's steps must stay light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "ray", "numpy", "pyarrow", "tokenizers", "scipy", "transformers", "datatrove")
CODE = f"""
import sys
import marin.tokens.mixture.cells, marin.tokens.mixture.weights
import marin.tokens.mixture.steps, marin.tokens.shards.steps, marin.tokens.tokenizer.steps
print(sorted(set({HEAVY}) & set(sys.modules)))
"""


def test_configs_and_steps_import_nothing_heavy():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
