"""Scales of the recipe: the same graph from a two-core machine to hundreds of GPUs, each one frozen dataclass."""

from marin.recipes.models import model_and_training, model_names, model_summary
from marin.recipes.registry import scale_named, scale_names
from marin.recipes.scale import Cell, Scale

__all__ = ["Cell", "Scale", "model_and_training", "model_names", "model_summary", "scale_named", "scale_names"]
