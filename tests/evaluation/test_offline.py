"""Evaluation reaches for no hub, and keeps its caches in the folder that it is given."""

from __future__ import annotations

import os
from pathlib import Path

import datasets
import huggingface_hub
import pytest

from marin.evaluation.offline import offline


def test_loaded_libraries_refuse_the_network_and_write_where_they_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", Path("/nowhere"))
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", Path("/nowhere"))
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    before = dict(os.environ)
    with offline(tmp_path):
        names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
        assert [os.environ[name] for name in names] == ["1", "1", "1"]
        assert huggingface_hub.constants.HF_HUB_OFFLINE is True
        assert Path(datasets.config.HF_DATASETS_CACHE).is_relative_to(tmp_path)
        with pytest.raises(Exception, match=r"(?i)offline|reach"):
            datasets.load_dataset("some-owner/some-data-set")
    assert dict(os.environ) == before
