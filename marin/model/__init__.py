"""The mixture-of-experts transformer in plain torch; it knows nothing of parallelism.

`config` and `accounting` import nothing heavy; everything else imports torch, so import it from its module:
`marin.model.transformer.Transformer`, `marin.model.outputs.LossSums`, `marin.model.dispatch.LocalDispatcher`.

`MarinConfig`, `MarinModel` and `MarinForCausalLM`, the model in the manner of Hugging Face, can be had from here; they
are imported when they are asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin.model.hugging_face.config import MarinConfig as MarinConfig
    from marin.model.hugging_face.model import MarinForCausalLM as MarinForCausalLM
    from marin.model.hugging_face.model import MarinModel as MarinModel


def __getattr__(name: str) -> Any:
    if name == "MarinConfig":
        from marin.model.hugging_face.config import MarinConfig

        return MarinConfig
    if name in ("MarinModel", "MarinForCausalLM"):
        from marin.model.hugging_face import model

        return getattr(model, name)
    raise AttributeError(f"module 'marin.model' has no attribute {name!r}")
