"""The mixture-of-experts transformer in plain torch; it knows nothing of parallelism.

`config` and `accounting` import nothing heavy; everything else imports torch, so import it from its module:
`marin.model.transformer.Transformer`, `marin.model.outputs.LossSums`, `marin.model.dispatch.LocalDispatcher`.
"""
