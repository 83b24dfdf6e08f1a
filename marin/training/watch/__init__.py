"""What looks at a run from beside it: figures, alerts, the watchdog, the numerics guard, the profile.

Each is a hook of `marin.training.hooks`, one file a concern. `config` and `rules` import nothing heavy.
"""
