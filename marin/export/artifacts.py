"""An exported model as an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"


@dataclass(frozen=True, kw_only=True)
class ExportedModel(Artifact):
    """A folder in the layout of Hugging Face.

    Files: config.json, the weights (model.safetensors, or several with model.safetensors.index.json), tokenizer.json
    and tokenizer_config.json. `marin.model.hugging_face.folder.import_model` reads a copy of the folder.
    """

    step: int
    model_type: str
    schema: int
    parameters: int
    """Values that are learned, and the router biases."""
    weight_files: tuple[str, ...]
    weight_bytes: int

    def present(self, places: dict[str, str]) -> str:
        """What the console says of it."""
        told = (
            f"{self.model_type} of step {self.step:,}: {self.parameters:,} values in {len(self.weight_files)} "
            f"safetensors files, {self.weight_bytes / 1e6:,.1f} MB"
        )
        return "\n".join([told, *(f"{what}: {where}" for what, where in places.items())])
