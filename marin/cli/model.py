"""`marin model`: what a scale's model is, costs and needs on its cards."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from marin.cli.arguments import USAGE_ERROR, fail, refuse_unknown

if TYPE_CHECKING:
    from marin.training.fit import Fit

FLAGS = ("--scale", "--gpus", "--accelerator", "--memory-gb", "--imbalance")


def run(arguments: Mapping[str, Any], rest: list[str]) -> int:
    """Print one JSON object: sizes, and with `--gpus` the bytes of the fullest rank; a table of them goes to standard
    error. `rest` are settings of the training below it, such as `--parallel.ep 32`.
    """
    from marin.recipes import model_names, model_summary

    scale = arguments["scale"]
    if scale not in model_names():
        fail(f"--scale: {scale!r} is none of {', '.join(model_names())}", USAGE_ERROR)
    told: dict[str, Any] = dict(model_summary(scale))
    if arguments["gpus"] is None:
        refuse_unknown(rest, FLAGS)
        print(json.dumps(told))
        return 0
    fit = _fit(arguments, rest)
    told["per_rank"] = per_rank(fit)
    print(json.dumps(told))
    print(table(fit), file=sys.stderr)
    return 0


def _fit(arguments: Mapping[str, Any], rest: list[str]) -> Fit:
    from marin.cli.overrides import effective
    from marin.recipes import model_and_training
    from marin.training.fit import CARD_GB, fit_of

    model, training, fleet = model_and_training(arguments["scale"])
    training = effective(training, None, rest, list(FLAGS))
    accelerator = arguments["accelerator"] or fleet.accelerator
    if arguments["accelerator"] and arguments["accelerator"] not in CARD_GB and arguments["memory_gb"] is None:
        fail(
            f"--accelerator: {accelerator!r} is none of {', '.join(CARD_GB)}; give its memory with --memory-gb",
            USAGE_ERROR,
        )
    for name, least in (("gpus", 1), ("memory_gb", 0), ("imbalance", 1)):
        value = arguments[name]
        if value is not None and not least <= value < math.inf:
            fail(f"--{name.replace('_', '-')}: {value} is not a number of at least {least}", USAGE_ERROR)
    try:
        return fit_of(
            model,
            training,
            ranks=arguments["gpus"],
            accelerator=accelerator,
            memory_gb=arguments["memory_gb"],
            imbalance=arguments["imbalance"],
        )
    except ValueError as error:
        fail(str(error), USAGE_ERROR)


def per_rank(fit: Fit) -> dict[str, Any]:
    """The fullest rank's bytes, and the verdict."""
    memory = fit.memory
    return {
        "ranks": fit.ranks,
        "worst_rank": 0,
        "weights_bytes": memory.weights,
        "gradients_bytes": memory.gradients,
        "optimizer_bytes": memory.optimizer,
        "optimizer_on_host_bytes": memory.optimizer_on_host,
        "buffers_bytes": memory.buffers,
        "gathered_bytes": memory.gathered,
        "reduced_bytes": memory.reduced,
        "activations_kept_bytes": memory.activations.kept,
        "activations_peak_bytes": memory.activations.peak,
        "peak_bytes": memory.peak,
        "even_weights_bytes": round(memory.even_weights),
        "card": fit.card,
        "card_bytes": fit.card_bytes,
        "usable_bytes": fit.usable_bytes,
        "headroom_bytes": fit.headroom_bytes,
        "fits": fit.fits,
    }


def table(fit: Fit) -> str:
    """The same for people, in 10⁹ bytes."""
    memory = fit.memory
    uneven = memory.weights / memory.even_weights - 1
    rows = [
        ("weights", memory.weights, f"{uneven:.2%} above an even share" if uneven > 1e-4 else ""),
        ("gradients", memory.gradients, ""),
        ("optimizer state", memory.optimizer, ""),
        ("optimizer state on the host", memory.optimizer_on_host, "not on the card"),
        ("routers' counters", memory.buffers, ""),
        ("gathered weights", memory.gathered, "whole units, at once"),
        ("gradients being summed", memory.reduced, "whole units, at once"),
        ("activations", memory.activations.peak, f"{memory.activations.kept / 1e9:.2f} after the forward pass"),
        ("together", memory.peak, ""),
    ]
    lines = [f"rank 0, the fullest of {fit.ranks}, in GB (10⁹ bytes):"]
    lines += [f"  {name:<28}{size / 1e9:>10.3f}  {note}".rstrip() for name, size, note in rows if size]
    if fit.usable_bytes is None:
        lines.append(f"memory of {fit.card or 'no card'} is not known: no verdict; give it with --memory-gb")
    else:
        verdict, left = ("fits", "are left") if fit.fits else ("does not fit", "are missing")
        lines.append(
            f"{verdict}: {fit.usable_bytes / 1e9:.1f} GB of {fit.card or 'the card'}'s "
            f"{(fit.card_bytes or 0) / 1e9:.0f} may be planned, {abs(fit.headroom_bytes or 0) / 1e9:.1f} GB {left}"
        )
    return "\n".join(lines)
