"""Pretraining: the loop on every rank, its metrics, its validation, and the step that dispatches it.

`config` and `steps` import nothing heavy. A gang of ranks enters at `rank.train_rank`; `loop` is what one rank does,
`validation`, `metrics`, `numerics` and `throughput` are its concerns, and `outputs` turns what the ranks left in the
resumable state into the files of the published checkpoint.
"""
