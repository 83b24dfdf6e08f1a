"""Weights of cells over phases, the order of sequences, and the loader."""
