"""Settings that every test of the project starts from."""

import os

from hypothesis import settings

# One thread a process: the suite runs beside other work on small machines, and sums stay in one order.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Nothing in a test may reach for a hub, send usage figures, or join a cluster that happens to be there.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
for _name in ("MARIN_PREFIX", "RAY_ADDRESS"):
    os.environ.pop(_name, None)

# How long one example takes says more about the machine's other work than about the code.
settings.register_profile("marin", deadline=None)
settings.load_profile("marin")
