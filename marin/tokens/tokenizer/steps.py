"""The step that trains a tokenizer."""

from __future__ import annotations

import logging

from marin.data.documents.artifacts import Documents
from marin.execution import Flow, StepError, current_run, step
from marin.tokens.tokenizer.artifacts import TOKENIZER_FILE, Tokenizer
from marin.tokens.tokenizer.config import TokenizerConfig

logger = logging.getLogger(__name__)


@step("tokens/tokenizer", version="2", cutoff=True)
def train_tokenizer(clean: Documents, config: TokenizerConfig = TokenizerConfig()) -> Tokenizer:
    """Learn a byte-level BPE vocabulary from the training split of consolidated documents.

    The file is the same for any order of shards and number of threads. It is published only when it passes
    :func:`marin.tokens.tokenizer.self_test.check_codec`. Beside it lie ``report.json`` and ``report.html``.

    Raises:
        StepError: there is no training text, or the tokenizer fails its self-test.
    """
    import hashlib

    from marin.data.documents.io import iterate_documents
    from marin.tokens.tokenizer.codec import TextCodec
    from marin.tokens.tokenizer.report import build_report, render_html
    from marin.tokens.tokenizer.self_test import SelfTestFailed, check_codec
    from marin.tokens.tokenizer.training import ReportSamples, draw_sample, train_bpe

    run = current_run()
    columns = ("id", "text", "source", "split")
    training = clean.select(split="train")
    probes = ReportSamples(config.report_bytes, config.seed)
    sources = sorted({shard.source for shard in training})
    try:
        samples = draw_sample(probes.watch(iterate_documents(clean, columns=columns, shards=training)), config, sources)
    except ValueError as error:
        raise StepError(str(error)) from error
    held_out = iterate_documents(clean, columns=columns, shards=clean.select(split="validation"))
    for _ in probes.watch(held_out):
        pass
    texts = sorted(text for sample in samples.values() for text in sample.texts)
    trained_bytes = sum(sample.size for sample in samples.values())
    if not trained_bytes:
        raise StepError(
            f"no text to train a tokenizer on: the documents have {len(training)} training shards and "
            f"tokenizer.sample_bytes is {config.sample_bytes}"
        )
    seen = sum(sample.seen for sample in samples.values())
    run.account(Flow(unit="documents", read=seen, kept=len(texts), dropped={"beyond_sample": seen - len(texts)}))
    run.progress(0, 1, unit="tokenizers", sample_mb=trained_bytes / 1e6)

    special = config.special
    try:
        definition = train_bpe((text for _, text in texts), config)
        codec = TextCodec.named(
            definition, bos=special.bos if special.add_bos else None, eos=special.eos if special.add_eos else None
        )
        check_codec(codec)
    except SelfTestFailed as error:
        raise StepError(f"the trained tokenizer is not published: {error}") from error
    except ValueError as error:
        raise StepError(str(error)) from error
    real, padded = codec.real_vocab_size, config.padded_size(codec.real_vocab_size)
    if real < config.vocab_size:
        logger.warning("asked for %d vocabulary entries, the text gives %d", config.vocab_size, real)

    report = build_report(codec, probes.texts, asked_size=config.vocab_size, padded_size=padded)
    data = definition.encode("utf-8")
    run.write_bytes(TOKENIZER_FILE, data)
    run.write_json("report.json", report)
    run.write_bytes("report.html", render_html(report).encode("utf-8"))
    run.progress(1, 1, unit="tokenizers", vocabulary=real)
    ids = {spelling: index for index, spelling in enumerate(special.spellings)}
    return Tokenizer(
        vocab_size=padded,
        real_vocab_size=real,
        asked_vocab_size=config.vocab_size,
        bos_id=None if special.bos is None else ids[special.bos],
        eos_id=ids[special.eos],
        pad_id=ids[special.pad],
        add_bos=special.add_bos,
        add_eos=special.add_eos,
        trained_bytes=trained_bytes,
        sha256=hashlib.sha256(data).hexdigest(),
    )
