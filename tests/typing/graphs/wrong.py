"""Graphs that are wired wrongly, one mistake a line; each line says which error the type checker must report."""

from marin.execution import adopted
from tests.typing.graphs.steps import (
    FLEET,
    Documents,
    Tokenizer,
    TokenizerConfig,
    Tokens,
    extract,
    mix,
    tokenize,
    train_tokenizer,
)

documents = extract("web")
tokenizer = train_tokenizer(documents)
tokens = tokenize(documents, tokenizer)

tokenize(tokenizer, documents)  # error: arg-type
train_tokenizer(tokenizer)  # error: arg-type
mix({"web": documents}, ())  # error: dict-item
mix({"web": tokens}, (tokens, tokenizer))  # error: arg-type
tokenize(documents)  # error: call-arg
tokenize(documents, tokenizer, select="web")  # error: call-arg
train_tokenizer(documents, TokenizerConfig(vocab_size="512"))  # error: arg-type
train_tokenizer(documents, {"vocab_size": 512})  # error: arg-type
one = documents.vocab_size  # error: attr-defined
other = tokenizer.label("x").rows  # error: attr-defined
third = tokens.on(FLEET).names("*").rows  # error: attr-defined
swapped: Documents = train_tokenizer(documents)  # error: assignment
labelled: Tokens = tokenizer.label("x").on(FLEET)  # error: assignment
extract(7).label(7)  # error: arg-type
by_hand = Tokenizer(size=1)  # error: call-arg
tokenize(adopted("mine", version="1", kind=Tokenizer), tokenizer)  # error: arg-type
adopted("mine", version="1", kind=TokenizerConfig)  # error: type-var
