"""Documents as token ids in Megatron-compatible files."""
