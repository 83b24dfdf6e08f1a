"""Carrying a plan out on one machine: claims, the runner, what a step's body sees of the run, commits, logs."""
