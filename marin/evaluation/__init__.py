"""Evaluation of a trained checkpoint: bits per byte, lm-eval tasks in this process, continuations, reports.

`steps` and `config` are what an experiment imports. `framing` says how text becomes requests, `scoring` and
`generation` ask the model, `adapter` and `harness` connect both to lm-eval, `heldout` measures packed held-out shards,
and `measure` puts it all together; `report` and `page` show the result.
"""
