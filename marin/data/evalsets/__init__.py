"""Evaluation sets: built from held-out documents, or read from files."""
