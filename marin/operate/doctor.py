"""`doctor`: look at the installation, the machine, the store and the cluster, and say what to do.

The store's self-test removes its probe; of a local prefix only empty folders are left, and none is created.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from marin.execution.cluster.address import split_address, unreachable
from marin.execution.cluster.token import refused
from marin.operate.findings import Finding, Level
from marin.operate.machine import check_disk, check_memory, check_shared_memory, check_temporary, existing
from marin.operate.packages import check_packages
from marin.storage import StoreError, open_store, split_url


def doctor(prefix: str, cluster: str | None = None) -> list[Finding]:
    """Every check, in the order in which a run would stumble.

    `cluster` is the Ray address that a run would join (`--cluster` or RAY_ADDRESS), None for an embedded Ray.
    """
    findings = check_packages()
    findings.append(check_store(prefix))
    scheme, rest = split_url(prefix)
    if scheme in ("file", "local"):
        findings.append(check_disk(Path(rest).expanduser()))
    findings += [check_memory(), check_temporary(), *check_shared_memory(), check_cluster(cluster)]
    return findings


def check_store(prefix: str) -> Finding:
    """The prefix can be written and creates an object only once: what every claim and record rests on."""
    try:
        missing = _missing_folder(prefix)
        if missing is not None:
            with tempfile.TemporaryDirectory(prefix=".marin-probe-", dir=existing(missing)) as folder:
                open_store(folder).check_writable()
            return Finding("store", Level.ok, f"{prefix} does not exist yet; the first run can create it")
        open_store(prefix).check_writable()
    except StoreError as error:
        return Finding("store", Level.fail, str(error), "mend that before any run")
    except Exception as error:  # a client library's own errors have no common class
        return Finding(
            "store",
            Level.fail,
            f"{prefix} cannot be used ({type(error).__name__}: {error})",
            "check the address and the credentials of its scheme",
        )
    return Finding("store", Level.ok, f"{prefix} is writable, and a second create of one key is refused")


def _missing_folder(prefix: str) -> Path | None:
    """The folder of a local prefix that does not exist: to look is not to create it. None for any other prefix."""
    root = open_store(prefix).local_path("key")
    return root.parent if root is not None and not root.parent.exists() else None


def check_cluster(address: str | None) -> Finding:
    """A Ray cluster's head listens at the address, and lets this machine in."""
    if not address or address == "local":
        return Finding("ray", Level.ok, "no cluster is named, so a run starts its own Ray on this machine")
    if address == "auto":
        return Finding("ray", Level.ok, "a run joins the cluster that runs on this machine")
    host, port = split_address(address)
    silence = unreachable(address)
    if silence is not None:
        return Finding(
            "ray",
            Level.fail,
            silence,
            "start the cluster (infra/README.md), mend --cluster or RAY_ADDRESS, or unset it for an embedded Ray",
        )
    refusal = refused(host, port, os.environ, Path.home())
    if refusal is not None:
        return Finding("ray", Level.fail, refusal, "docs/how-to/cluster.md, Tokens")
    return Finding("ray", Level.ok, f"{host}:{port} answers, and lets this machine in")
