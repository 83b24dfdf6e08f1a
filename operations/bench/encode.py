"""Documents to token shards, against the tokenizer alone: one JSON line a row, MB of UTF-8 text a CPU second.

    python operations/bench/encode.py --text FILE… [--tokenizer tokenizer.json]

Ours is the whole step `tokens/shards`, inline and on one thread: reading parquet, encoding, counting ids, writing
`.bin`, `.idx` and the provenance, with their digests. The peer is `encode_batch_fast` of the same
`tokenizers.Tokenizer` over the same texts, which already lie in memory, in batches of the same size. Both take turns;
the best of `--rounds` counts. Without `--tokenizer` one of `--vocabulary` entries is trained on the text first.

Texts are cut into documents of about `--characters`, at line ends. `FILE` is plain text, or JSON lines with `text`,
plain or zstd.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from crawl_inputs import race

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import DocumentWriter, documents_of
from marin.data.documents.schema import make_document
from marin.execution import External, current_run, materialise, step
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.shards.config import Selection, TokenizeConfig
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.artifacts import TOKENIZER_FILE, Tokenizer
from marin.tokens.tokenizer.config import ImportConfig, KnownTokenizer, TokenizerConfig
from marin.tokens.tokenizer.steps import import_tokenizer, train_tokenizer


def texts_of(path: Path) -> Iterator[str]:
    """The texts of one file."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    if path.stem.endswith("jsonl") or path.suffix == ".jsonl":
        yield from (json.loads(line)["text"] for line in data.splitlines())
    else:
        yield data.decode("utf-8", "replace")


def cut(text: str, characters: int) -> Iterator[str]:
    """Parts of a text of about so many characters, at line ends."""
    part: list[str] = []
    size = 0
    for line in text.splitlines(keepends=True):
        part.append(line)
        size += len(line)
        if size >= characters:
            yield "".join(part)
            part, size = [], 0
    if part:
        yield "".join(part)


@step("bench/documents", version="1", inline=True)
def documents(files: Sequence[External], characters: int) -> Documents:
    """The texts as consolidated documents of one shard."""
    with DocumentWriter(
        current_run().write, "bench", source="bench", split="train", quality=0, topic=0, consolidated=True
    ) as writer:
        for number, file in enumerate(files):
            for at, text in enumerate(texts_of(Path(file.path))):
                for index, part in enumerate(cut(text, characters)):
                    if part.strip():
                        writer.write(make_document(part, source="bench", position=f"{number}:{at}:{index}"))
    return documents_of("bench", writer.shards)


def batches(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    """Texts in batches of about so many characters, as the step makes them."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= size:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def main() -> None:
    """Print the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE")
    parser.add_argument("--eos", default="<|endoftext|>", help="end-of-document token of --tokenizer")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--characters", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = tuple(External(str(path.resolve()), version=str(path.stat().st_size)) for path in options.text)
        clean = materialise(documents(files, options.characters), prefix=folder)
        print(json.dumps(measured(clean, tokenizer_of(options, clean, folder), options, folder)), flush=True)


def tokenizer_of(options: argparse.Namespace, clean: Documents, folder: str) -> Tokenizer:
    """The tokenizer that was asked for."""
    if options.tokenizer is None:
        return materialise(train_tokenizer(clean, TokenizerConfig(vocab_size=options.vocabulary)), prefix=folder)
    known = KnownTokenizer(options.tokenizer.stem, External(str(options.tokenizer.resolve()), version="1"))
    return materialise(import_tokenizer(ImportConfig(known, eos=options.eos)), prefix=folder)


def measured(clean: Documents, tokenizer: Tokenizer, options: argparse.Namespace, folder: str) -> dict[str, object]:
    """Both sides, in turns."""
    import pyarrow.parquet as pq
    import tokenizers

    engine = tokenizers.Tokenizer.from_str(tokenizer.read(TOKENIZER_FILE).decode())
    texts: list[str] = []
    for shard in clean.shards:
        with clean.open(shard.name) as stream:
            texts += pq.ParquetFile(stream).read(columns=["text"]).column("text").to_pylist()
    megabytes = clean.text_bytes / 1e6
    size = TokenizeConfig().batch_bytes
    made: list[TokenShards] = []
    counts: list[int] = []

    def ours() -> None:
        prefix = f"{folder}/{len(made)}"  # each time another, or there would be nothing to do
        made.append(materialise(tokenize(clean, tokenizer, Selection(), TokenizeConfig()), prefix=prefix))

    def peer() -> None:
        found = [engine.encode_batch_fast(batch, add_special_tokens=False) for batch in batches(texts, size)]
        counts.append(sum(len(one) for batch in found for one in batch))

    best, _ = race({"peer": peer, "ours": ours}, options.rounds)
    edges = (tokenizer.add_bos + tokenizer.add_eos) * len(texts)
    assert all(one.tokens == counts[0] + edges for one in made), "both sides have the same tokens"
    return {
        "name": "encode",
        "ours": round(megabytes / best["ours"], 3),
        "peer": round(megabytes / best["peer"], 3),
        "ratio": round(best["peer"] / best["ours"], 3),
        "unit": "MB/s cpu",
        "input": f"{len(texts)} documents, {megabytes:.1f} MB, {tokenizer.real_vocab_size} entries",
        "peer_name": f"tokenizers {tokenizers.__version__} encode_batch_fast",
        "tokens": made[0].tokens,
    }


if __name__ == "__main__":
    main()
