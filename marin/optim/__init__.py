"""Optimizers, the recipe's learning-rate rule and the schedule.

`config` imports nothing heavy; `marin.optim.build.build_optimizer` imports torch.
"""
