"""The model in the manner of Hugging Face: names, folder layout, `MarinConfig`, `MarinModel`, `MarinForCausalLM`.

`naming` maps every field of the model's configuration and every tensor to its name there; `folder` writes and reads;
`config` and `model` are the classes. It needs no `transformers`.
"""
