"""The steps that train a tokenizer, or take over one that was made elsewhere."""

from __future__ import annotations

from marin.data.documents.artifacts import Documents
from marin.execution import Flow, StepError, current_run, step
from marin.tokens.tokenizer.artifacts import TEMPLATE_FILE, TOKENIZER_FILE, Tokenizer
from marin.tokens.tokenizer.config import ImportConfig, TokenizerConfig, padded

LEAST_FILLED = 0.9
"""A source that fills less than this part of its share of the sample is told."""


@step("tokens/tokenizer", version="4", cutoff=True)
def train_tokenizer(clean: Documents, config: TokenizerConfig = TokenizerConfig()) -> Tokenizer:
    """Learn a byte-level BPE vocabulary from the training split of consolidated documents.

    The file is the same for any order of shards and number of threads. It is published only when it passes
    :func:`marin.tokens.tokenizer.self_test.check_codec`. Beside it lie ``report.json`` and ``report.html``, which
    compare it with known tokenizers (``config.references``) by source, by language and on probes in several scripts.

    Raises:
        StepError: there is no training text, or the tokenizer fails its self-test.
    """
    import hashlib

    from marin.data.documents.io import iterate_documents
    from marin.tokens.tokenizer.codec import TextCodec
    from marin.tokens.tokenizer.known import codec_of
    from marin.tokens.tokenizer.report import build_report, render_html
    from marin.tokens.tokenizer.self_test import SelfTestFailed, check_codec
    from marin.tokens.tokenizer.training import ReportSamples, draw_sample, train_bpe

    run = current_run()
    columns = ("id", "text", "source", "split", "language")
    training = clean.select(split="train")
    by_source = ReportSamples(lambda document: (document.source, document.split), config.report_bytes, config.seed)
    by_language = ReportSamples(lambda document: (document.language or "unknown",), config.report_bytes, config.seed)
    references = {known.name: codec_of(known) for known in config.references}
    sources = sorted({shard.source for shard in training})
    try:
        passing = by_language.watch(by_source.watch(iterate_documents(clean, columns=columns, shards=training)))
        samples = draw_sample(passing, config, sources)
    except ValueError as error:
        raise StepError(str(error)) from error
    held_out = iterate_documents(clean, columns=columns, shards=clean.select(split="validation"))
    for _ in by_language.watch(by_source.watch(held_out)):
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
    real, size = codec.real_vocab_size, config.padded_size(codec.real_vocab_size)
    if real < config.vocab_size:
        run.remark(f"tokenizer.vocab_size asks for {config.vocab_size} entries, the text gives {real}")
    for source, sample in sorted(samples.items()):
        if config.source_weights and sample.size < LEAST_FILLED * sample.budget:
            run.remark(
                f"tokenizer.source_weights give {source!r} {sample.budget:,} bytes of the sample, of which it has "
                f"{sample.size:,}"
            )

    report = build_report(
        codec, by_source.texts, by_language.texts, references, asked_size=config.vocab_size, padded_size=size
    )
    report["sample"] = {
        source or "all": {"asked_bytes": sample.budget, "bytes": sample.size} for source, sample in samples.items()
    }
    data = definition.encode("utf-8")
    run.write_bytes(TOKENIZER_FILE, data)
    if special.chat_template is not None:
        run.write_bytes(TEMPLATE_FILE, special.chat_template.encode())
    run.write_json("report.json", report)
    run.write_bytes("report.html", render_html(report).encode("utf-8"))
    run.progress(1, 1, unit="tokenizers", vocabulary=real)
    ids = {spelling: index for index, spelling in enumerate(special.spellings)}
    return Tokenizer(
        vocab_size=size,
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


@step("tokens/imported", version="2", inline=True)
def import_tokenizer(config: ImportConfig) -> Tokenizer:
    """A tokenizer that was made elsewhere, published only when it passes the self-test of a trained one.

    It must give back what documents hold, which is UTF-8 in NFC: GPT-NeoX's lacks the other bytes, and brings text
    into NFC itself.

    Raises:
        StepError: it cannot be read, is not byte-level, names no end-of-document token, or does not give texts back
            exactly, as one that makes all letters small.
    """
    import hashlib

    from marin.tokens.tokenizer.codec import TextCodec
    from marin.tokens.tokenizer.known import edges_of, named_codec, read_known, special_id
    from marin.tokens.tokenizer.self_test import SelfTestFailed, check_codec

    run = current_run()
    files = read_known(config.known)
    edges = edges_of(files, config)
    whole = named_codec(config.known, files.definition, bos=edges.bos, eos=edges.eos)
    pad_id = special_id(config.known, files.definition, "pad", edges.pad)
    add_bos = config.add_bos and edges.bos is not None
    codec = TextCodec(
        files.definition, bos_id=whole.bos_id if add_bos else None, eos_id=whole.eos_id if config.add_eos else None
    )
    try:
        check_codec(codec, of_documents=True)
    except SelfTestFailed as error:
        raise StepError(
            f"the tokenizer {config.known.name!r} ({config.known.files.path}) is refused: {error}"
        ) from error
    data = files.definition.encode("utf-8")
    run.write_bytes(TOKENIZER_FILE, data)
    if files.chat_template is not None:
        run.write_bytes(TEMPLATE_FILE, files.chat_template.encode())
    assert whole.eos_id is not None
    return Tokenizer(
        vocab_size=padded(codec.real_vocab_size, config.pad_to_multiple),
        real_vocab_size=codec.real_vocab_size,
        asked_vocab_size=codec.real_vocab_size,
        bos_id=whole.bos_id,
        eos_id=whole.eos_id,
        pad_id=pad_id,
        add_bos=add_bos,
        add_eos=config.add_eos,
        trained_bytes=0,
        sha256=hashlib.sha256(data).hexdigest(),
    )
