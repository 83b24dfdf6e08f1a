"""Exact and near duplicates, and text that overlaps evaluation items."""
