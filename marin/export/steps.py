"""The step that exports a checkpoint."""

from __future__ import annotations

from marin.checkpoint.artifacts import Checkpoint
from marin.execution import current_run, step
from marin.export.artifacts import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, ExportedModel
from marin.export.config import ExportConfig
from marin.model.hugging_face.naming import MODEL_TYPE, SCHEMA
from marin.tokens.tokenizer.artifacts import TEMPLATE_FILE, Tokenizer


@step("exports/hugging_face", version="1")
def export_model(checkpoint: Checkpoint, tokenizer: Tokenizer, config: ExportConfig = ExportConfig()) -> ExportedModel:
    """The model with its tokenizer as a folder in the layout of Hugging Face; `folder.import_model` reads it back.

    Router biases are part of it, in full precision: without them the router would choose other experts.
    """
    from marin.checkpoint.loading import load_model
    from marin.model.hugging_face.folder import write_model
    from marin.tokens.tokenizer.codec import load_codec

    run = current_run()
    codec = load_codec(tokenizer)
    special = {"bos": tokenizer.bos_id, "eos": tokenizer.eos_id, "pad": tokenizer.pad_id}
    written = write_model(
        load_model(checkpoint),
        run.write_bytes,
        precision=config.precision,
        shard_bytes=config.shard_bytes,
        extra={f"{name}_token_id": token for name, token in special.items()},
    )
    run.write_bytes(TOKENIZER_FILE, tokenizer.read("tokenizer.json"))
    spelled = {
        f"{name}_token": codec.token_bytes(token).decode() for name, token in special.items() if token is not None
    }
    run.write_json(
        TOKENIZER_CONFIG_FILE,
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": checkpoint.model.sequence_length,
            "add_bos_token": tokenizer.add_bos,
            "add_eos_token": tokenizer.add_eos,
            "clean_up_tokenization_spaces": False,
            **spelled,
        },
    )
    if tokenizer.names(TEMPLATE_FILE):
        run.write_bytes(TEMPLATE_FILE, tokenizer.read(TEMPLATE_FILE))
    return ExportedModel(
        step=checkpoint.step,
        model_type=MODEL_TYPE,
        schema=SCHEMA,
        parameters=written.values,
        weight_files=written.files,
        weight_bytes=written.bytes,
    )
