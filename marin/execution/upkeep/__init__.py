"""Life after the run: verify, pin, collect, tombstone, adopt, copy."""
