"""Runs of several processes, started by the tests: python processes.py JOB FOLDER."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch

from fourviews import convex
from fourviews.convex import problem as problem_module
from fourviews.convex.heads import self_attention
from fourviews.convex.solution import Neurons
from fourviews.convex.solvers import checkpoint

torch.set_num_threads(1)


def tokens(n=31, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, 6, generator=g, dtype=torch.float64) / 2
    return X, torch.randn(n, 4, generator=g, dtype=torch.float64), torch.arange(n) % 4


def problems():
    X, Y, labels = tokens()
    gated = {"activation": "gated_relu", "n_gates": 4}
    return {
        "attention": convex.SelfAttention(X, Y, beta=0.3, pool="mean"),
        "mlp": convex.MLP(X, labels, beta=0.5, pool="mean", loss="cross_entropy", **gated),
        "block_fno": convex.BlockFNO(X, Y, beta=1.0, pool="mean", grid=(2, 2), blocks=2, **gated),
    }


def results(problem, whole, group):
    """What every process has to agree on; ``whole`` fixes the points at which sums are taken."""
    g = torch.Generator().manual_seed(3)
    randn = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    p, q = whole.block_shape
    units = Neurons(randn(3, p), randn(3, q), torch.arange(3) % whole.n_blocks)
    Z = randn(*whole.coefficient_shape)
    shards = convex.Shards(problem, 8, group=group)
    numbers = lambda *values: torch.tensor(values, dtype=torch.float64)  # noqa: E731
    loss, gradient = shards.loss_and_gradient(units)
    options = {"shard": 8, "group": group, "progress": False}
    factored = convex.factored(problem, tol=1e-5, **options)
    fista = convex.fista(problem, tol=1e-5, max_iterations=15, **options)
    return {
        "gradients": [numbers(loss), *gradient[:2], shards.loss_and_gradient(Z)[1]],
        "certificates": numbers(*shards.certificate(units), *shards.certificate(Z)),
        "largest beta": numbers(convex.largest_beta(problem, shard=8, group=group)),
        "samples": shards.n_samples,
        "fista": fista.coefficients,
        "factored": list(factored.neurons[:2]),
        "values": numbers(
            factored.objective, factored.lower_bound, factored.relative_gap, fista.relative_gap
        ),
    }


def equality(folder, group):
    found = {}
    for name, whole in problems().items():
        found[name] = results(group.part(whole), whole, group)
    whole = problems()["mlp"]
    last = group.size - 1
    mine = slice(0, 31) if group.rank == last else slice(0, 0)
    found["uneven"] = results(whole.part(mine), whole, group)
    if group.size > 1:
        other = whole if group.rank == 0 else whole.with_beta(0.25)
        try:
            convex.factored(other, group=group, progress=False)
        except ValueError as error:
            found["disagreement"] = str(error)
        try:
            convex.factored(whole, group=group, tol=(0.1, 0.2)[group.rank], progress=False)
        except ValueError as error:
            found["options"] = str(error)
    torch.save(found, folder / f"{group.size}_{group.rank}.pt")


def end_early(folder, group, *, end):
    """The second process ends, or sleeps, in the midst of a solve."""
    calls, all_sum = [], type(group).all_sum

    def watched(self, value):
        calls.append(1)
        if len(calls) == 40 and self.rank == 1:
            end()
        return all_sum(self, value)

    type(group).all_sum = watched
    convex.factored(group.part(problems()["mlp"]), group=group, shard=5, tol=0, progress=False)


def stop(folder, group, *, before_replacing):
    """Killed after the third checkpoint, or while the third takes its place."""
    written = []
    replace = os.replace

    def watched(*paths):
        written.append(1)
        if len(written) == 3 and before_replacing:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)
        if len(written) == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoint.os.replace = watched
    solve_with_checkpoint(folder, group)


def solve_with_checkpoint(folder, group):
    problem = group.part(problems()["mlp"])
    solution = convex.factored(
        problem, shard=5, group=group, tol=1e-7, checkpoint=folder / "run.pt", progress=False
    )
    if group.rank == 0:
        history = [(r.iteration, r.objective, r.lower_bound) for r in solution.history]
        torch.save([*solution.neurons, history], folder / f"solution_{group.size}.pt")


def memory(folder, group):
    """Largest anonymous memory while problems over a file are made, differentiated and certified."""

    def anonymous():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3

    X = np.load(folder / "tokens.npy", mmap_mode="r")
    # What is kept while there is little of it would hide the growth of what is not.
    problem_module._LARGEST_MASKS = self_attention._LARGEST_MOMENTS = 0
    found, done = {}, threading.Event()
    peak = [0.0]

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], anonymous())
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    n, s, d = X.shape
    for name, head, options in (
        ("mlp", convex.MLP, {}),
        ("gated mlp", convex.MLP, {"activation": "gated_relu", "n_gates": 40}),
        ("attention", convex.SelfAttention, {}),
        ("fno", convex.FNO, {"grid": (7, s // 7)}),
    ):
        for count in (n // 4, n // 4, n // 2, n):  # once to warm up
            peak[0] = anonymous()
            before = peak[0]
            problem = head(X[:count], np.arange(count) % 3, beta=1.0, pool="mean", **options)
            shards = convex.Shards(problem, 64)
            p, q = problem.block_shape
            block = torch.arange(4) % problem.n_blocks
            point = Neurons(torch.ones(4, p), torch.ones(4, q), block)
            shards.loss_and_gradient(point)
            shards.certificate(point)
            found[f"{name} {count}"] = peak[0] - before
    done.set()
    thread.join()
    (folder / "memory.json").write_text(json.dumps(found))


JOBS = {
    "equality": equality,
    "killed": lambda *a: end_early(*a, end=lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "asleep": lambda *a: end_early(*a, end=lambda: time.sleep(60)),
    "solve": solve_with_checkpoint,
    "stop": lambda *a: stop(*a, before_replacing=False),
    "stop while writing": lambda *a: stop(*a, before_replacing=True),
    "memory": memory,
}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = 5 if sys.argv[1] == "asleep" else 300
    with convex.processes(timeout=seconds) as group:
        JOBS[sys.argv[1]](Path(sys.argv[2]), group)
