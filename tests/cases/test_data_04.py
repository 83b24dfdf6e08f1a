"""A packed document never sees the one before it: in attention, in convolutions, in the loss."""

import torch

from marin.model.config import ModelConfig
from marin.model.transformer import Transformer

LENGTH = 24
CONFIG = ModelConfig.shaped(
    width=64, layers=4, head_dim=16, vocab_size=64, experts=8, experts_per_token=2, sequence_length=LENGTH, gate_rank=16
)
FIRST, SECOND, OTHER = list(range(10, 18)), list(range(30, 38)), list(range(50, 60))


def model() -> Transformer:
    made = Transformer(CONFIG)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith(("taps", "head_gate")):
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return made.eval()


def pack(*documents: list[int]) -> dict[str, torch.Tensor]:
    """Documents one after the other in one row, padded by a segment of its own without loss."""
    tokens, segments, positions, mask = [], [], [], []
    for number, document in enumerate(documents):
        tokens += document
        segments += [number] * len(document)
        positions += range(len(document))
        mask += [True] * (len(document) - 1) + [False]
    padding = LENGTH - len(tokens)
    targets = [*tokens[1:], 0] + [0] * padding
    rows = {
        "tokens_BT": tokens + [0] * padding,
        "segments_BT": segments + [len(documents)] * padding,
        "positions_BT": positions + list(range(padding)),
        "targets_BT": targets,
        "loss_mask_BT": mask + [False] * padding,
    }
    return {name: torch.tensor([row]) for name, row in rows.items()}


def logits(made: Transformer, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return made(batch["tokens_BT"], batch["segments_BT"], batch["positions_BT"])[0]


def test_the_second_document_does_not_change_with_the_first():
    made = model()
    packed = logits(made, pack(FIRST, SECOND))[8:16]
    replaced = logits(made, pack(OTHER[:8], SECOND))[8:16]
    alone = logits(made, pack(SECOND))[:8]
    assert float((packed - replaced).abs().max()) <= 1e-6
    assert float((packed - alone).abs().max()) <= 1e-5


def test_without_borders_the_first_document_does_change_the_second():
    made = model()
    joined, other = logits(made, pack(FIRST + SECOND)), logits(made, pack(OTHER[:8] + SECOND))
    assert float((joined[8:16] - other[8:16]).abs().max()) > 1e-3


def test_no_loss_is_taken_for_predicting_a_document_from_the_one_before():
    made = model()
    together = made(**pack(FIRST, SECOND))
    apart = [made(**pack(FIRST)), made(**pack(SECOND))]
    assert int(together.token_count) == 14
    torch.testing.assert_close(together.nll_sum, apart[0].nll_sum + apart[1].nll_sum)


def test_no_gradient_reaches_the_first_document_from_the_second():
    made = model()
    batch = pack(FIRST, SECOND)
    batch["loss_mask_BT"][:, :8] = False
    made(**batch).total_sum.backward()
    gradient = made.embedding.weight.grad
    assert not gradient[FIRST].any()
    assert gradient[SECOND[:-1]].any(dim=1).all()
