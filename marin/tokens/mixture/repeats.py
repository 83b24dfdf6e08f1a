"""Finding stretches of a batch in which a short pattern of tokens repeats itself many times in a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.config import RepeatMask

Bools = npt.NDArray[np.bool_]


def repeated_targets(
    tokens: npt.NDArray[np.int64],
    targets: npt.NDArray[np.int64],
    segments: npt.NDArray[np.int32],
    loss_mask: Bools,
    mask: RepeatMask,
) -> Bools:
    """Places whose target continues a repetition: it equals the token one period before it, in a stretch that holds
    its pattern at least ``mask.repeats`` times within one document. The first time of the pattern is not among them.

    Args:
        tokens: int64 [B, S].
        targets: int64 [B, S].
        segments: int32 [B, S], number of the document.
        loss_mask: bool [B, S], False where the target belongs to another document.
        mask: what counts as a repetition.

    Returns:
        bool [B, S].
    """
    rows, length = tokens.shape
    window = np.concatenate([tokens, targets[:, -1:]], axis=1)
    last = np.where(loss_mask[:, -1:], segments[:, -1:], np.int32(-1))
    owner = np.concatenate([segments, last], axis=1)
    found = np.zeros((rows, length + 1), dtype=np.bool_)
    for period in range(1, min(mask.longest_period, length) + 1):
        least = period * (mask.repeats - 1)
        if least > length + 1 - period:
            break
        equal = np.zeros((rows, length + 2 - period), dtype=np.bool_)  # a last column that ends every run
        np.equal(window[:, :-period], window[:, period:], out=equal[:, :-1])
        equal[:, :-1] &= owner[:, :-period] == owner[:, period:]
        turns = np.flatnonzero(np.diff(equal.ravel(), prepend=False))
        begins, ends = turns[::2], turns[1::2]
        for at in np.flatnonzero(ends - begins >= least).tolist():
            row, begin = divmod(int(begins[at]), equal.shape[1])
            found[row, begin + period : begin + period + int(ends[at] - begins[at])] = True
    return found[:, 1:]
