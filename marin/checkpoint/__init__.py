"""Checkpoints: what is saved, where it lies, when it counts, and how it is read back.

A checkpoint is a folder of files in a step's resumable state. It counts only once its finish mark, written last,
lists every file with its size and sha256; everything else that lies there is skipped with a reason. `layout` names
the files, `completeness` decides what counts, `progress` holds all state that is not a tensor, `tensors` names all
that is, `store` saves and restores both, and `loading` reads a model from a published checkpoint into one process.
"""
