"""The document model: schema, normalised text, parquet shards and the attribute files beside them."""
