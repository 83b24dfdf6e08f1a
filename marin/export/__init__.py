"""The step that stores a trained model as a folder in the layout of Hugging Face, with its tokenizer.

Names and layout are those of `marin.model.hugging_face`, which reads the folder back.
"""
