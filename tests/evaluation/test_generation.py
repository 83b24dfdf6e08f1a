"""Continuations follow from the prompt and its seed alone."""

from __future__ import annotations

import torch

from marin.evaluation.generation import BatchedGenerator, Finish, Prompt
from tests.evaluation.doubles import BOS, BYTES, EOS, ByteCodec, PrefixModel


def generator(model=None, *, batch_size=8, eos_id=EOS, forbidden=(BOS,)):
    return BatchedGenerator(
        model or PrefixModel(),
        ByteCodec().decode,
        eos_id=eos_id,
        forbidden=forbidden,
        real_vocab_size=BYTES,
        max_length=64,
        batch_size=batch_size,
    )


PROMPTS = [Prompt(tuple(b"a longer prompt"), 1), Prompt(tuple(b"short"), 2), Prompt(tuple(b"x"), 3)]


def test_greedy_takes_the_likeliest_allowed_token_each_time():
    model = PrefixModel()
    ids = list(PROMPTS[0].ids)
    for _ in range(6):
        tokens = torch.tensor([ids])
        logits = model(tokens, torch.zeros_like(tokens), torch.arange(len(ids))[None])[0, -1]
        logits[[BOS, EOS]] = -torch.inf
        ids.append(int(logits.argmax()))
    (ours,) = generator(forbidden=(BOS, EOS)).generate(PROMPTS[:1], 6, 0.0)
    assert list(ours.ids) == ids[-6:]
    assert ours.finish is Finish.LENGTH


def test_a_sampled_continuation_is_the_same_alone_and_in_company():
    together = generator().generate(PROMPTS, 8, 1.0)
    alone = [generator().generate([prompt], 8, 1.0)[0] for prompt in reversed(PROMPTS)][::-1]
    assert together == alone == generator(batch_size=2).generate(PROMPTS, 8, 1.0)
    other_seed = [Prompt(p.ids, p.seed + 100) for p in PROMPTS]
    assert generator().generate(other_seed, 8, 1.0) != together


def test_sampling_follows_the_probabilities():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    fixed = BatchedGenerator(
        lambda tokens, segments, positions: logits.expand(*tokens.shape, 3),
        lambda ids: "",
        eos_id=None,
        real_vocab_size=3,
        max_length=4_000,
    )
    (drawn,) = fixed.generate([Prompt((0,), 7)], 600, 1.0)
    shares = torch.bincount(torch.tensor(drawn.ids), minlength=3) / 600
    assert torch.allclose(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.06)


def test_the_end_of_document_ends_a_continuation_and_is_not_part_of_it():
    def ends_after_two(tokens, segments, positions):
        logits = torch.zeros(*tokens.shape, BYTES)
        logits[..., ord("z")] = 1.0
        logits[:, 2:, EOS] = 2.0
        return logits

    (text,) = generator(ends_after_two).generate([Prompt((ord("a"),), 0)], 10, 0.0)
    assert (text.text, text.finish) == ("zz", Finish.DOCUMENT)


def test_a_stop_text_ends_a_continuation_before_itself():
    def counts(tokens, segments, positions):
        return torch.nn.functional.one_hot((tokens + 1) % BYTES, BYTES).float()

    (text,) = generator(counts).generate([Prompt((ord("a"),), 0, stop=("ef", "zz"))], 10, 0.0)
    assert (text.text, text.finish) == ("bcd", Finish.STOP)


def test_vocabulary_padding_is_never_written():
    def prefers_padding(tokens, segments, positions):
        logits = torch.zeros(*tokens.shape, BYTES + 6)
        logits[..., BYTES:] = 9.0
        return logits

    (text,) = generator(prefers_padding).generate([Prompt((1,), 0)], 3, 1.0)
    assert max(text.ids) < BYTES
