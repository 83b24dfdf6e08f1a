"""What planning a run may import."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "ray", "numpy", "pyarrow", "tokenizers", "tensorboard", "scipy")


def test_the_step_and_its_config_import_nothing_heavy() -> None:
    program = (
        "import sys, marin.training.steps, marin.training.config, marin.checkpoint.artifacts, marin.training.rank; "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
