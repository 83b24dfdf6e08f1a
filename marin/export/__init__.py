"""A trained model as a folder in the layout of Hugging Face (safetensors, config.json, tokenizer.json), and back.

`naming` maps every field of the model's configuration and every tensor to its name there; `folder` writes and reads.
"""
