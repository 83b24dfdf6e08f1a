"""Whether this machine has the room that a run needs: memory, disk, temporary space, shared memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from marin.operate.findings import Finding, Level

GB = 1e9

# A laptop-scale run peaks below 6 GB of memory and leaves about 1 GB; the limits below leave it room.
MEMORY_GB = (4.0, 8.0)
DISK_GB = (2.0, 10.0)
SPOOL_GB = (1.0, 5.0)
SHARED_GB = (0.2, 1.0)


def grade(subject: str, free: float, limits: tuple[float, float], what: str, way_out: str) -> Finding:
    """A finding on free bytes: fail below the first limit (GB), warn below the second."""
    detail = f"{free / GB:.1f} GB {what}"
    least, comfortable = limits
    if free < least * GB:
        return Finding(subject, Level.fail, f"{detail}, at least {least:g} GB are needed", way_out)
    if free < comfortable * GB:
        return Finding(subject, Level.warn, f"{detail}, less than {comfortable:g} GB", way_out)
    return Finding(subject, Level.ok, detail)


def check_memory() -> Finding:
    """Memory that a run can take without swapping."""
    import psutil

    return grade(
        "memory",
        psutil.virtual_memory().available,
        MEMORY_GB,
        "available",
        "end other programs, or take a smaller scale (--scale smoke) or fewer steps at once (--max-concurrent 1)",
    )


def check_disk(folder: Path) -> Finding:
    """Free space where a local prefix lies; the folder itself may not exist yet."""
    return grade(
        "disk",
        shutil.disk_usage(existing(folder)).free,
        DISK_GB,
        f"free at {folder}",
        "free some, or choose a prefix elsewhere with --prefix or MARIN_PREFIX",
    )


def check_temporary(folder: Path | None = None) -> Finding:
    """Free space for scratch files and Ray's session and spilled objects."""
    place = folder or Path(tempfile.gettempdir())
    return grade(
        "scratch",
        shutil.disk_usage(existing(place)).free,
        SPOOL_GB,
        f"free at {place}",
        "free some, or set TMPDIR to a folder with room",
    )


def check_shared_memory(folder: Path = Path("/dev/shm")) -> list[Finding]:
    """Room for Ray's object store, on systems that keep it in /dev/shm."""
    if not folder.is_dir():
        return []
    way_out = "mount it larger (a container: --shm-size=2g); Ray falls back to slower files in the scratch folder"
    finding = grade("shared memory", shutil.disk_usage(folder).free, SHARED_GB, f"free at {folder}", way_out)
    # Ray works without, only slower.
    return [finding if finding.level is Level.ok else Finding(finding.subject, Level.warn, finding.detail, way_out)]


def existing(folder: Path) -> Path:
    """The nearest folder that exists, at or above the given one."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place
