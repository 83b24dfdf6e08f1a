"""The step that makes a mixture of token shards."""

from __future__ import annotations

import logging

from marin.execution import Flow, StepError, current_run, step
from marin.tokens.mixture.artifacts import Mixture, MixturePhase
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.shards.artifacts import TokenShards

logger = logging.getLogger(__name__)


@step("tokens/mixture", version="3", cutoff=True)
def build_mixture(cells: dict[str, TokenShards], config: MixtureConfig = MixtureConfig()) -> Mixture:
    """Check the cells, resolve their weights over the phases, and report them.

    Raises:
        StepError: cells are missing, empty, damaged or made with different tokenizers (each is listed), or the
            weights do not fit them.
    """
    from marin.tokens.mixture.cells import CellTable
    from marin.tokens.mixture.figure import render_shares
    from marin.tokens.mixture.report import build_report, render_html
    from marin.tokens.mixture.weights import epochs_over, resolve_weights

    run = current_run()
    try:
        config.check_cells(cells)
    except ValueError as error:
        raise StepError(f"the mixture's weights do not fit its cells: {error}") from error
    refuse_faulty(cells)
    refuse_unfit_packing(cells, config)
    tokens = {name: shards.tokens for name, shards in sorted(cells.items())}
    try:
        resolved = resolve_weights(config, tokens)
    except ValueError as error:
        raise StepError(f"the mixture cannot be made: {error}") from error
    for note in resolved.notes:
        logger.warning("%s", note)
    phases = tuple(
        MixturePhase(phase.name, phase.share, phase.ramp, weights)
        for phase, weights in zip(config.phases, resolved.phases, strict=True)
    )
    first = next(iter(cells.values()))
    report = build_report(
        phases,
        tokens,
        {name: shards.documents for name, shards in cells.items()},
        epochs=epochs_over(config, resolved.phases, tokens),
        budget_tokens=config.budget_tokens,
        max_epochs=config.max_epochs,
        capped=resolved.capped,
        notes=resolved.notes,
    )
    run.write_json("report.json", report)
    figure = render_shares(report)
    run.write_bytes("shares.svg", figure.encode("utf-8"))
    run.write_bytes("report.html", render_html(report, figure).encode("utf-8"))
    budget = config.budget_tokens or sum(tokens.values())
    table = CellTable(
        tokenizer=first.tokenizer_sha256,
        available_tokens=tokens,
        phase_budgets=tuple(max(1, round(budget * phase.share)) for phase in phases),
        phase_weights=resolved.phases,
    )
    run.write_bytes("cells.json", table.to_json().encode("utf-8"))
    total = sum(tokens.values())
    run.account(Flow(unit="tokens", read=total, kept=total, dropped={}))
    return Mixture(
        components=dict(sorted(cells.items())),
        phases=phases,
        tokens=total,
        vocab_size=first.vocab_size,
        pad_id=first.pad_id,
        max_epochs=config.max_epochs,
        budget_tokens=config.budget_tokens,
        exhausted=config.exhausted,
        tail=config.tail,
        simulate_budget=config.simulate_budget,
        difficulty_bands=config.difficulty_bands,
        repeat_mask=config.repeat_mask,
    )


def refuse_faulty(cells: dict[str, TokenShards]) -> None:
    """Recount every cell from its files, and refuse those that are empty, unfinished or not alike.

    Raises:
        StepError: listing each faulty cell with its fault.
    """
    from marin.tokens.shards.reading import recount, token_counts

    first_name, first = next(iter(sorted(cells.items())))
    faults: list[str] = []
    for name, shards in sorted(cells.items()):
        try:
            counts = [recount(shards, shard) for shard in shards.shards]
            counted = int(token_counts(shards).sum())
        except (StepError, OSError) as error:
            faults.append(f"{name}: unfinished or damaged: {error}")
            continue
        found = (sum(tokens for tokens, _ in counts), sum(documents for _, documents in counts))
        if found != (shards.tokens, shards.documents) or counted != shards.tokens:
            faults.append(
                f"{name}: its record says {shards.tokens} tokens of {shards.documents} documents, its files hold "
                f"{found[0]} of {found[1]} and its counts {counted}"
            )
        elif not shards.tokens:
            faults.append(f"{name}: no document matches {shards.selection}")
        elif (shards.tokenizer_sha256, shards.vocab_size) != (first.tokenizer_sha256, first.vocab_size):
            faults.append(f"{name}: made with another tokenizer than {first_name}")
    if faults:
        raise StepError("the mixture does not start with faulty cells:\n" + "\n".join(f"  {fault}" for fault in faults))


def refuse_unfit_packing(cells: dict[str, TokenShards], config: MixtureConfig) -> None:
    """Refuse cells that are packed in different ways, or not as the configuration needs them.

    Raises:
        StepError: naming a cell and the setting.
    """
    first_name, first = next(iter(sorted(cells.items())))
    for name, shards in sorted(cells.items()):
        if shards.packing != first.packing:
            raise StepError(
                f"cell {name!r} is packed as {shards.packing}, cell {first_name!r} as {first.packing}; tokenize all "
                "cells of a mixture with one tokenize.packing"
            )
        if config.difficulty_bands > 1 and shards.order_by == "stored":
            raise StepError(
                f"mixture.difficulty_bands is {config.difficulty_bands}, but the documents of cell {name!r} are in no "
                "order of difficulty; set tokenize.order_by, or difficulty_bands to 1"
            )
    if config.tail == "drop" and first.packing.policy != "carry_on":
        raise StepError(
            f"mixture.tail is 'drop', but the cells are packed as {first.packing.policy!r}, whose sequences are filled "
            "up one by one; use 'pad'"
        )
