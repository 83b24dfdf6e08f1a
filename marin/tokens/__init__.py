"""From clean documents to exact batches: tokenizer, token shards, mixture."""
