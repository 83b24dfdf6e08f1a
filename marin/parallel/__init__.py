"""Spreads the model over ranks: meshes, sharding, the expert exchange, gradient norms.

`config` imports nothing heavy; everything else imports torch, so import it from its module:
`marin.parallel.meshes.build_meshes`, `marin.parallel.build.build_model`, `marin.parallel.gradients.gradient_norm`.
"""
