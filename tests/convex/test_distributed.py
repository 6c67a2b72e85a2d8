"""Several processes: one solution, global certificates, and an end where one is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from fourviews import convex

from . import processes

SCRIPT = Path(__file__).with_name("processes.py")
ROOT = SCRIPT.parents[2]


def start(job, folder, count):
    """The processes of a job, as ``torchrun`` would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), os.environ.get("PYTHONPATH", "")]),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), job, str(folder)],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def run(job, folder, count=1, seconds=300):
    """Exit status and standard error of each."""
    started = start(job, folder, count)
    try:
        errors = [process.communicate(timeout=seconds)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], errors


def same(one, other, tolerance):
    if isinstance(one, torch.Tensor):
        if tolerance == 0:
            return torch.equal(one, other)
        return torch.allclose(one, other, rtol=tolerance, atol=tolerance)
    if isinstance(one, list):
        return all(same(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return one == other


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    codes, errors = run("equality", folder, 2)
    assert codes == [0, 0], errors
    return [torch.load(folder / f"2_{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def one():
    group = convex.Group()
    found = {
        name: processes.results(problem, problem, group)
        for name, problem in processes.problems().items()
    }
    return found | {"uneven": found["mlp"]}


CASES = ("attention", "mlp", "block_fno", "uneven")


@pytest.mark.parametrize("name", CASES)
def test_both_processes_end_with_the_same(name, two):
    for key in two[0][name]:
        assert same(two[0][name][key], two[1][name][key], 0), key


@pytest.mark.parametrize("name", CASES)
def test_two_processes_are_one_to_rounding(name, two, one):
    mine, wanted = two[0][name], one[name]
    assert mine["samples"] == 31
    for key in ("gradients", "certificates", "largest beta"):
        assert same(mine[key], wanted[key], 1e-11), key
    assert same(mine["fista"], wanted["fista"], 1e-9)
    # Descent on factors leaves saddles, which amplify rounding: the certified gap is what remains.
    objective, bound, gap, _ = mine["values"].tolist()
    assert gap <= 1e-5
    assert objective == pytest.approx(float(wanted["values"][0]), rel=1e-5)
    whole = processes.problems()[name if name != "uneven" else "mlp"]
    exact = convex.solve(whole, tol=1e-9, progress=False)
    assert bound <= exact.objective * (1 + 1e-9), "the bound is one for all samples"


def test_problems_that_do_not_agree_are_named_in_both(two):
    for rank, beta in enumerate(("0.5", "0.25")):
        message = two[rank]["disagreement"]
        assert "must agree on their problems" in message and f"process {rank} has" in message
        assert f"beta {beta}" in message
        message = two[rank]["options"]
        assert "must agree on options" in message and f"tol=0.{rank + 1}" in message


@pytest.mark.parametrize("job, longest", [("killed", 250), ("asleep", 250)])
def test_a_lost_process_ends_the_others(job, longest, tmp_path):
    started = start(job, tmp_path, 2)
    try:
        began = time.perf_counter()
        error = started[0].communicate(timeout=longest)[1]
        assert time.perf_counter() - began < longest
        assert started[0].returncode == 1
        assert "process 0 of 2 lost another one" in error
        assert "with a checkpoint they go on where they were" in error
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_one_process_alone_needs_no_group():
    with convex.processes() as group:
        assert (group.rank, group.size) == (0, 1)
        problem = processes.problems()["mlp"]
        assert group.share(7) == slice(0, 7) and len(group.part(problem).X) == 31
        assert group.total(3.0) == 3.0 and group.from_first(lambda: [1]) == [1]


def test_shares_are_disjoint_and_nearly_equal():
    for size in (1, 2, 3, 8):
        for count in (0, 1, 5, 31):
            groups = [convex.Group(rank, size) for rank in range(size)]
            parts = [list(range(count))[group.share(count)] for group in groups]
            assert sum(parts, []) == list(range(count))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


# More processes than samples, in threads: each is one of a group ----------------------------------


class Threads(convex.Group):
    """One of several threads that sum as processes do."""

    def __init__(self, rank, size, shared):
        super().__init__(rank, size)
        self.shared = shared

    def all_sum(self, value):
        values, barrier = self.shared["values"], self.shared["barrier"]
        values[self.rank] = value.clone()
        barrier.wait(timeout=60)
        value.copy_(torch.stack(values).sum(0))
        barrier.wait(timeout=60)
        return value

    def from_first(self, function):
        if self.rank == 0:
            try:
                self.shared["answer"] = function(), None
            except ValueError as error:
                self.shared["answer"] = None, error
        self.shared["barrier"].wait(timeout=60)
        answer, error = self.shared["answer"]
        self.shared["barrier"].wait(timeout=60)
        if error is not None:
            raise error
        return answer


def together(size, work):
    """What each of several threads returns for its group."""
    shared = {"values": [None] * size, "barrier": threading.Barrier(size)}

    def one(rank):
        try:
            return work(Threads(rank, size, shared))
        except BaseException:
            shared["barrier"].abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return [task.result() for task in [pool.submit(one, rank) for rank in range(size)]]


@pytest.mark.parametrize("name", ["attention", "mlp", "block_fno"])
@pytest.mark.parametrize("n, size, shard", [(1, 3, 5), (2, 5, None), (3, 5, 1), (7, 4, 2)])
def test_more_processes_than_samples(name, n, size, shard, tmp_path):
    whole = processes.problems()[name].part(slice(0, n))
    options = {"shard": shard, "tol": 1e-4, "progress": False}
    alone = convex.factored(whole, **options)
    parts = [convex.Group(rank, size).part(whole) for rank in range(size)]

    def work(group):
        part = parts[group.rank]
        path = tmp_path / "run.pt"
        top = convex.largest_beta(part, shard=shard, group=group)
        return len(part.X), top, convex.factored(part, group=group, checkpoint=path, **options)

    found = together(size, work)
    assert sum(count for count, _, _ in found) == n
    assert min(count for count, _, _ in found) <= 1
    for _, top, solution in found:
        assert top == pytest.approx(convex.largest_beta(whole), rel=1e-9)
        assert solution.relative_gap <= 1e-4
        assert solution.objective == pytest.approx(alone.objective, rel=3e-4)
        assert torch.equal(solution.neurons.first, found[0][2].neurons.first)
    # The checkpoint is that of one process too: digests of samples do not depend on the parts.
    again = convex.factored(whole, checkpoint=tmp_path / "run.pt", **options)
    assert again.relative_gap <= 1e-4


@pytest.mark.parametrize(
    "variables, words",
    [
        ({"WORLD_SIZE": "2"}, "RANK must be a whole number"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK must be less than WORLD_SIZE, got 2 and 2"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK must be a whole number"),
        ({"WORLD_SIZE": "0"}, "RANK must be"),
    ],
)
def test_an_environment_that_torchrun_does_not_make(variables, words, monkeypatch):
    """Without RANK all would take themselves for the first, and wait for each other."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        with convex.processes():
            pass
