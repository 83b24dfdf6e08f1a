"""Checkpoints: what is saved, where it lies, when it counts, and how it is read back.

A checkpoint is a folder of files in a step's resumable state. It counts only once its finish mark, written last,
lists every file with its size and sha256; everything else that lies there is skipped with a reason. `config` says when
and how; `layout` names the files; `completeness` decides what counts; `progress` holds all state that is not a tensor,
`tensors` names all that is, and `identity` what the whole belongs to. `store` saves and restores both; `staging` copies
them into host memory, `background` writes the copy while training goes on, `rehearsal` proves that it comes back.
`reading` fills tensors from a checkpoint, `partial` a part of them for another run, and `loading` a model in one
process from a published checkpoint.
"""
