"""What the processes that are killed have imported before they are forked."""

import marin.training.loop as loop
import tests.training.toy as toy
import tests.training.waiting as waiting

__all__ = ["loop", "toy", "waiting"]
