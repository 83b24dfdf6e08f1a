"""Failures of checkpoints whose message is for people."""

from __future__ import annotations

from marin.execution import StepError


class CheckpointError(StepError):
    """A checkpoint cannot be written or read; the message says which file and what to do."""


class NotFinite(CheckpointError):
    """A tensor that is to be saved holds a NaN or an infinity."""


class KeyMismatch(CheckpointError):
    """Names, shapes or dtypes of a checkpoint's tensors are not those that the model and the optimizer ask for."""


class IdentityMismatch(CheckpointError):
    """A checkpoint belongs to another model, mixture or schedule; the message lists the differing fields."""
