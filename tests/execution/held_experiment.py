"""An experiment of one held step: `python -m tests.execution.held_experiment TALLY HOLD …flags of experiments…`."""

from __future__ import annotations

import sys

from marin.cli.experiment import experiment_main
from marin.execution import Artifact
from marin.recipes import Scale
from tests.execution.graphs import Probe, leaf


def main() -> None:
    """Run it."""
    tally, hold, *flags = sys.argv[1:]

    def build(scale: Scale) -> Artifact:
        return leaf("held", Probe(tally, hold))

    experiment_main(build, default="smoke", argv=flags)


if __name__ == "__main__":
    main()
