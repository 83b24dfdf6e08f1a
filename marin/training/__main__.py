"""`torchrun --nproc-per-node N -m marin.training --config FILE`: the step `model/pretrain` without Ray.

FILE is what `marin training-job` writes: the settings of the run, and where its finished inputs lie. Exits with 0 when
the checkpoint is published, 1 after a failure, 75 when the run was asked to end and has saved.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

from marin.execution import StepError, StopRequest
from marin.execution.running.call_file import read_call
from marin.storage import StoreError, open_store
from marin.training.environment import RankEnvironment
from marin.training.steps import pretrain
from marin.training.stopping import signals_to

logger = logging.getLogger("marin.training")


def main(argv: list[str] | None = None) -> int:
    """Runs one rank; returns its exit code."""
    parser = argparse.ArgumentParser(prog="marin.training", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="what `marin training-job` wrote")
    parser.add_argument("--force", action="store_true", help="train again although the checkpoint is there")
    parser.add_argument(
        "--debug-numerics",
        action="store_true",
        help="repeat the steps since the last checkpoint in fp32 until one is not finite, and say where it began",
    )
    asked = parser.parse_args(argv)
    environment = RankEnvironment.read()
    logging.basicConfig(
        level=logging.INFO if environment.rank == 0 else logging.WARNING,
        format=f"%(asctime)s rank {environment.rank} %(message)s",
        stream=sys.stderr,
    )
    stop = StopRequest()
    with signals_to(stop):
        return run(asked.config, environment, stop, force=asked.force, debug_numerics=asked.debug_numerics)


def run(
    file: Path,
    environment: RankEnvironment,
    stop: StopRequest,
    *,
    force: bool = False,
    debug_numerics: bool = False,
) -> int:
    """Runs one rank of the file's call; returns its exit code."""
    import yaml

    from marin.training.process_group import process_group
    from marin.training.torchrun import fleet_of, run_step

    try:
        described = yaml.safe_load(file.read_text())
        if debug_numerics:
            described["arguments"]["training"]["debug_numerics"] = True
        call = read_call(described, pretrain).on(fleet_of(environment))
        store = open_store(described["prefix"])
    except (OSError, StepError, StoreError, ValueError, yaml.YAMLError) as error:
        logger.error("--config %s: %s", file, error)
        return 1
    with process_group(environment) as ranks:
        return run_step(call, store, ranks, stop, force=force)


if __name__ == "__main__":
    # A launcher may signal ranks that are ending already: they keep their exit code.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(main())
