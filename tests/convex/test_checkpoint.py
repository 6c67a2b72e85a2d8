"""Interrupted solves go on from their checkpoint; what is no checkpoint of theirs is refused."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fourviews import convex
from fourviews.convex.solvers import checkpoint
from fourviews.data.files import sealed

from . import processes
from .test_distributed import run


def solve(path, problem=None, **options):
    problem = processes.problems()["mlp"] if problem is None else problem
    options = {"shard": 5, "tol": 1e-7, "progress": False} | options
    return convex.factored(problem, checkpoint=path, **options)


def kept(path):
    return torch.load(io.BytesIO(sealed.read(path)))


def keep(path, content):
    packed = io.BytesIO()
    torch.save(content, packed)
    sealed.write(path, packed.getvalue())


def history(solution):
    return [(r.iteration, r.objective, r.lower_bound) for r in solution.history]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run("solve", folder)[0] == [0]
    return torch.load(folder / "solution_1.pt"), folder / "run.pt"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("job", ["stop", "stop while writing"])
def test_killed_and_resumed_it_ends_bit_by_bit_the_same(job, tmp_path, uninterrupted):
    assert run(job, tmp_path)[0] == [-signal.SIGKILL]
    left = kept(tmp_path / "run.pt")
    assert left["state"]["iteration"] == (3 if job == "stop" else 2)
    assert not (tmp_path / "solution_1.pt").exists()
    assert run("solve", tmp_path)[0] == [0]
    resumed = torch.load(tmp_path / "solution_1.pt")
    *tensors, records = resumed
    *wanted, wanted_records = uninterrupted[0]
    assert records == wanted_records and len(records) > 4
    assert all(map(torch.equal, tensors, wanted))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_in_two_processes_and_resumed_in_one(tmp_path, uninterrupted):
    codes, errors = run("stop", tmp_path, 2)
    assert codes[0] == -signal.SIGKILL and codes[1] == 1
    assert "process 1 of 2 lost another one" in errors[1]
    solution = solve(tmp_path / "run.pt")
    assert solution.converged and solution.history[3].iteration == 3
    assert solution.objective == pytest.approx(uninterrupted[0][-1][-1][1], rel=2e-7)


def test_finished_or_with_other_tolerance_it_goes_on(tmp_path):
    path = tmp_path / "run.pt"
    first = solve(path, tol=1e-3)
    again = solve(path, tol=1e-3)
    assert history(again) == history(first)
    assert torch.equal(again.neurons.first, first.neurons.first)
    finer = solve(path, tol=1e-7)
    assert finer.converged and history(finer)[: len(first.history) - 1] == history(first)[:-1]
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


def test_samples_in_another_order_are_the_same_problem(tmp_path):
    X, Y, _ = processes.tokens()
    path, turn = tmp_path / "run.pt", torch.randperm(31, generator=torch.Generator().manual_seed(0))
    make = lambda X, Y: convex.MLP(X, Y, beta=0.5, pool="mean")  # noqa: E731
    first = solve(path, make(X, Y), tol=1e-4)
    turned = solve(path, make(X[turn], Y[turn]), tol=1e-4)
    assert turned.objective == pytest.approx(first.objective, rel=1e-9)
    with pytest.raises(ValueError, match="another problem: samples 31, digest"):
        solve(path, make(X[turn], Y))


CHANGES = {
    "beta 0.5 there, 0.25 here": lambda p: p.with_beta(0.25),
    "loss cross_entropy there, squared here": lambda p: convex.MLP(
        p.X, p.loss.target, beta=0.5, pool="mean", activation="gated_relu", gates=p.gates
    ),
    "gates ": lambda p: convex.MLP(
        p.X, p.loss.target, beta=0.5, pool="mean", loss="cross_entropy",
        activation="gated_relu", gates=p.gates.flip(0),
    ),
    "samples 31, digest ": lambda p: convex.MLP(
        p.X + (torch.arange(31) == 17)[:, None, None] * 1e-9, p.loss.target, beta=0.5, pool="mean",
        loss="cross_entropy", activation="gated_relu", gates=p.gates,
    ),
    "head MLP there, SelfAttention here": lambda p: processes.problems()["attention"],
}  # fmt: skip


@pytest.mark.parametrize("said", CHANGES)
def test_another_problems_checkpoint_is_refused(said, uninterrupted):
    problem = CHANGES[said](processes.problems()["mlp"])
    with pytest.raises(ValueError, match="belongs to another problem: .*" + said):
        solve(uninterrupted[1], problem)


def test_other_options_that_decide_are_refused(uninterrupted):
    with pytest.raises(ValueError, match="rank 1 there, 2 here"):
        solve(uninterrupted[1], rank=2)
    with pytest.raises(ValueError, match="failure_probability 1e-09 there, 0.001 here"):
        solve(uninterrupted[1], failure_probability=1e-3)


def test_damaged_files_are_refused_and_left_alone(tmp_path, uninterrupted):
    whole = uninterrupted[1].read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for number, content in enumerate(
        (b"", b"no checkpoint", whole[:-200], whole[:middle], b"\0" * len(whole), flipped)
    ):
        path = tmp_path / f"{number}.pt"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot be read .*: it is damaged or no checkpoint"):
            solve(path)
        assert path.read_bytes() == content
    keep(tmp_path / "list.pt", [1, 2])
    with pytest.raises(ValueError, match="damaged or no checkpoint; give another path"):
        solve(tmp_path / "list.pt")
    keep(tmp_path / "new.pt", kept(uninterrupted[1]) | {"format": 99})
    with pytest.raises(ValueError, match="has format 99, not 1"):
        solve(tmp_path / "new.pt")


def test_a_checkpoint_needs_a_file_in_a_folder(tmp_path):
    for path in (tmp_path, tmp_path / "none" / "run.pt"):
        with pytest.raises(ValueError, match="must be a file in a folder that exists"):
            solve(path)


def test_a_failed_write_leaves_the_last_whole_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    solve(path, max_iterations=2)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=f"{path}. cannot be written .No space left.*one before it"):
        solve(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_disk_that_becomes_full_in_the_midst_is_told(tmp_path, monkeypatch):
    """What torch would make an error about positions in a file."""
    path = tmp_path / "run.pt"
    solve(path, max_iterations=2)
    before = path.read_bytes()

    class Full(io.FileIO):
        def write(self, content):
            if len(content) > 1000:
                raise OSError(28, "No space left on device")
            return super().write(content)

    monkeypatch.setattr(os, "fdopen", Full)
    with pytest.raises(OSError, match="cannot be written .No space left") as caught:
        solve(path)
    assert caught.value.errno == 28
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_that_cannot_be_written_is_told_before_the_solve(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(checkpoint.Path, "touch", refuse)
    monkeypatch.setattr(convex.MLP, "units_passes", None)  # no descent
    with pytest.raises(ValueError, match="run.pt. cannot be written .Read-only file system"):
        solve(tmp_path / "run.pt")


def test_another_working_directory_after_the_start(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    passes = convex.MLP.units_passes

    def moved(*arguments):
        monkeypatch.chdir(tmp_path / "here")
        return passes(*arguments)

    monkeypatch.setattr(convex.MLP, "units_passes", moved)
    solve("run.pt", max_iterations=2)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["run.pt"]
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_memory_does_not_grow_with_the_samples(tmp_path):
    """Tokens of 12, 25 and 50 MB in a file: a pass and a certificate take no more for more of them."""
    X = np.random.default_rng(0).standard_normal((4096, 49, 64), dtype=np.float32)
    np.save(tmp_path / "tokens.npy", X)
    codes, errors = run("memory", tmp_path)
    assert codes == [0], errors
    found = json.loads((tmp_path / "memory.json").read_text())
    for name in ("mlp", "gated mlp", "attention", "fno"):
        small, middle, large = (found[f"{name} {n}"] for n in (1024, 2048, 4096))
        assert large < 40, (name, found)  # MB, of data of 51
        # What an earlier pass has freed serves a later one, so the first may show the most.
        assert large - max(small, middle) < 8, (name, found)


def test_a_time_limit_counts_from_the_resumption(tmp_path):
    path = tmp_path / "run.pt"
    solve(path, max_iterations=2)
    state = kept(path)
    state["state"]["log"]["seconds"] = 1e6
    keep(path, state)
    solution = solve(path, time_limit=1e3)
    assert solution.converged and solution.history[-1].seconds > 1e6
