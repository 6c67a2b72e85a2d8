"""What all tests share: checked markers, repeatable runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import ledger

ROOT = Path(__file__).resolve().parents[1]

# The same examples on every run and machine: a failure that comes and goes teaches nobody.
# A slow machine is no fault of the code, so neither time limits nor «too slow» count.
settings.register_profile(
    "fourviews",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fourviews")


def pytest_configure(config: pytest.Config) -> None:
    # Tests ask no publisher for data: what a machine without the network does at once, a machine
    # with half of one would do after minutes of further attempts. The loaders' own tests download
    # from servers of theirs. FOURVIEWS_OFFLINE=0 lifts it.
    os.environ.setdefault("FOURVIEWS_OFFLINE", "1")
    try:
        import torch
    except ImportError:  # the tools and their tests work without it
        return
    torch.set_num_threads(min(2, torch.get_num_threads()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse markers that name no row of the register, or a verdict that there is not."""
    ids = {claim.id for claim in ledger.load_register(ROOT / "book" / "claims.yml")}
    checks = {"claim": ledger.check_claim_marker, "mutation": ledger.check_mutation_marker}
    for item in items:
        for mark in item.iter_markers():
            if mark.name not in checks:
                continue
            arguments = (mark.args, mark.kwargs)
            try:
                checks[mark.name](*arguments, ids)
            except ValueError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from error
