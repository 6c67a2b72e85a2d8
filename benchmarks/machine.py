"""What the numbers were measured on."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

PACKAGES = (
    *("fourviews", "torch", "numpy", "scipy"),
    *("cvxpy", "clarabel", "scs", "cvxpylayers", "pyscnn", "celer"),
)


def describe() -> dict[str, str]:
    """Date; processor, cores, memory and threads; versions."""
    processor = platform.processor() or platform.machine()
    memory = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
        total = int(Path("/proc/meminfo").read_text().split()[1]) / 1e6
        memory = f", {total:.0f} GB"
    except OSError:
        pass  # not Linux: what `platform` knows has to do
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{name} missing")
    cores = f"{os.cpu_count()} cores{memory}, {torch.get_num_threads()} threads"
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor}, {cores}",
        "versions": ", ".join(versions),
    }
