"""Cluster definitions rendered from execution's Fleet, the image, and the launcher."""
