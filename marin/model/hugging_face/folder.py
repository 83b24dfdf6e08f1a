"""Writing and reading the exported folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from marin.model.config import ModelConfig
from marin.model.hugging_face.naming import (
    CONFIG_FILE,
    INDEX_FILE,
    ExportError,
    Precision,
    config_from_folder,
    config_to_folder,
    exported_name,
    never_rounded,
)
from marin.model.transformer import Transformer

SHARD_BYTES = 5_000_000_000
"""Most bytes of tensors in one file; a larger tensor gets a file of its own."""

Write = Callable[[str, bytes], None]
"""Stores a file of the folder by name."""


@dataclass(frozen=True)
class WrittenWeights:
    """What was written: file names, number of values, bytes of tensors."""

    files: tuple[str, ...]
    values: int
    bytes: int


def write_model(
    model: Transformer,
    write: Write,
    *,
    precision: Precision = Precision.STORED,
    shard_bytes: int = SHARD_BYTES,
    extra: Mapping[str, Any] | None = None,
) -> WrittenWeights:
    """Write config.json (with `extra` entries) and the weights. One file's tensors are copied at a time."""
    tensors = _tensors(model)
    sizes = {name: _stored(name, tensor.dtype, precision).itemsize * tensor.numel() for name, tensor in tensors.items()}
    shards = list(_shards(sizes, shard_bytes))
    files = ["model.safetensors"]
    if len(shards) > 1:
        files = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    for file, names in zip(files, shards, strict=True):
        content = {
            name: tensors[name].detach().to("cpu", _stored(name, tensors[name].dtype, precision)).contiguous()
            for name in names
        }
        write(file, save(content, metadata={"format": "pt"}))
    if len(shards) > 1:
        weight_map = {name: file for file, names in zip(files, shards, strict=True) for name in names}
        write(INDEX_FILE, _json({"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}))
    dtype = _stored("", model.embedding.weight.dtype, precision)
    told = config_to_folder(model.config) | {"dtype": str(dtype).removeprefix("torch.")} | dict(extra or {})
    write(CONFIG_FILE, _json(told))
    return WrittenWeights(tuple(files), sum(tensor.numel() for tensor in tensors.values()), sum(sizes.values()))


def import_model(folder: Path | str) -> Transformer:
    """The model of an exported folder, in evaluation mode on the CPU; from the stored precision the logits are exact.

    Weights stored in bfloat16 are read into float32. Raises `ExportError` when the folder is of another layout, or a
    tensor is missing, unexpected or of another shape.
    """
    return read_weights(Transformer(read_config(folder)), folder)


def read_config(folder: Path | str) -> ModelConfig:
    """The model's configuration from the folder's config.json."""
    return config_from_folder(json.loads((Path(folder) / CONFIG_FILE).read_text(encoding="utf-8")))


def read_weights(model: Transformer, folder: Path | str, *, ignored: Collection[str] = ()) -> Transformer:
    """Fill `model`, whose configuration is that of the folder; tensors of the folder that are `ignored` are left."""
    folder = Path(folder)
    targets = _tensors(model)
    unread = set(targets)
    for file in _weight_files(folder):
        with safe_open(folder / file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # not a mapping: it has no __iter__
                if name in ignored:
                    continue
                if name not in targets:
                    raise ExportError(f"{file} holds a tensor {name!r} that the model of config.json does not have")
                tensor = tensors.get_tensor(name)
                if tensor.dtype is torch.float64 and targets[name].dtype is not torch.float64:
                    model = model.double()
                    targets = _tensors(model)
                if tensor.shape != targets[name].shape:
                    raise ExportError(
                        f"{name} is {list(tensor.shape)} in {file}; config.json makes it {list(targets[name].shape)}"
                    )
                with torch.no_grad():
                    targets[name].copy_(tensor)
                unread.discard(name)
    if unread:
        raise ExportError(f"{folder} lacks {len(unread)} tensors, such as {min(unread)!r}")
    return model.eval()


def _tensors(model: Transformer) -> dict[str, Tensor]:
    """The model's own tensors by their name in the folder."""
    return {
        theirs: tensor for name, tensor in model.state_dict().items() if (theirs := exported_name(name)) is not None
    }


def _stored(name: str, dtype: torch.dtype, precision: Precision) -> torch.dtype:
    """The type in which a tensor is stored."""
    if precision is Precision.BFLOAT16 and dtype.is_floating_point and not never_rounded(name):
        return torch.bfloat16
    return dtype


def _shards(sizes: Mapping[str, int], limit: int) -> Iterator[list[str]]:
    """Names in order, in groups of at most `limit` bytes; a larger tensor is a group of its own."""
    group: list[str] = []
    size = 0
    for name, bytes_ in sizes.items():
        if group and size + bytes_ > limit:
            yield group
            group, size = [], 0
        group.append(name)
        size += bytes_
    if group:
        yield group


def _weight_files(folder: Path) -> list[str]:
    if (folder / INDEX_FILE).exists():
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
        return sorted(set(index["weight_map"].values()))
    return ["model.safetensors"]


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, allow_nan=False).encode() + b"\n"
