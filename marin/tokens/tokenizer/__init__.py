"""Training a byte-level BPE tokenizer and using it on text that nobody vouches for."""
