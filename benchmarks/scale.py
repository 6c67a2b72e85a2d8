"""Convex heads over more tokens than memory: growth of time and memory with n, and two processes.

Tokens lie in a file of float32 and are read through a memory map.  Times are seconds on the clock
and, after them, of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from results import Row

from fourviews import convex
from fourviews.convex.solution import Neurons

TOKENS, FEATURES, CLASSES, GRID, BLOCKS = 196, 100, 100, (14, 14), 5
SHARD = 256
ENOUGH = 4.0  # seconds of passes
SIZES, MIXER_SIZES = (25_000, 50_000), (1000, 2000)
#: Heads with their hidden units: m = 100, five for attention.
HEADS: dict[str, tuple[Callable, int]] = {
    "MLP": (convex.MLP, 100),
    "attention": (convex.SelfAttention, 5),
    "FNO": (lambda X, Y, **o: convex.FNO(X, Y, grid=GRID, **o), 100),
    "B-FNO": (lambda X, Y, **o: convex.BlockFNO(X, Y, grid=GRID, blocks=BLOCKS, **o), 100),
    "mixer": (convex.Mixer, 100),
}


def write_tokens(path: Path, n: int) -> None:
    """Gaussian tokens (n, 196, 100), a thousand samples at a time."""
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n, TOKENS, FEATURES))
    generator = np.random.default_rng(0)
    for start in range(0, n, 1000):
        part = X[start : start + 1000]
        part[:] = generator.standard_normal(part.shape, dtype=np.float32) / TOKENS**0.5
    X.flush()


def problem_of(name: str, X: np.ndarray, activation: str = "linear") -> convex.Problem:
    options = {} if activation == "linear" else {"n_gates": HEADS[name][1] // BLOCKS}
    return HEADS[name][0](
        X,
        np.arange(len(X)) % CLASSES,
        beta=1.0,
        pool="mean",
        loss="cross_entropy",
        classes=CLASSES,
        activation=activation,
        **options,
    )


def units_of(name: str, problem: convex.Problem) -> Neurons:
    generator = torch.Generator().manual_seed(0)
    m = HEADS[name][1]
    p, q = problem.block_shape
    return Neurons(
        torch.randn(m, p, generator=generator) / p**0.5,
        torch.randn(m, q, generator=generator) / q**0.5,
        torch.arange(m) % problem.n_blocks,
    )


# --- memory ---------------------------------------------------------------------------------


def anonymous() -> float:
    """Memory of this process, in GB, that no file stands behind; nan where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e6
    except (OSError, StopIteration):
        return float("nan")


@contextmanager
def watched() -> Iterator[list[float]]:
    """Largest anonymous memory inside, sampled every few milliseconds."""
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.003):
            peak[0] = max(peak[0], anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


# --- one gradient ----------------------------------------------------------------------------


def gradient(name: str, activation: str, path: Path, n: int) -> dict[str, float]:
    """Seconds of one full gradient in factored form, and memory of that and of making the problem."""
    X = np.load(path, mmap_mode="r")[:n]
    for start in range(0, n, 1000):  # from here on the file lies in the system's cache
        X[start : start + 1000].max()
    with watched() as peak:
        shards = convex.Shards(problem_of(name, X, activation), SHARD)
        units = units_of(name, shards.problem)
        # The first pass pays for what is set up once.
        convex.Shards(shards.problem.part(slice(0, SHARD)), SHARD).loss_and_gradient(units)
        times = []
        # A pass of half a second says little: the clock of the machine drifts within a second.
        while sum(seconds for seconds, _ in times) < ENOUGH:
            started, used = time.perf_counter(), time.process_time()
            shards.loss_and_gradient(units)
            times.append((time.perf_counter() - started, time.process_time() - used))
    seconds, used = map(min, zip(*times, strict=True))
    return {"seconds": seconds, "processor": used, "memory": peak[0]}


def apart(*arguments: object, processes: int = 1) -> dict[str, float]:
    """The same in a process of its own, with one thread each; what the first one says."""
    command = [sys.executable, __file__, *map(str, arguments)]
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command[1:1] = [*launcher, "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def growth(
    name: str, activation: str, path: Path, sizes: tuple[int, int], rounds: int
) -> Iterator[str]:
    runs = [[apart("gradient", name, activation, path, n) for n in sizes] for _ in range(rounds)]
    # Both sizes in turns, and of each the least, so that what else runs slows down both alike.
    found = [
        {key: min(run[i][key] for run in runs) for key in ("seconds", "processor")}
        | {"memory": max(run[i]["memory"] for run in runs)}
        for i in range(len(sizes))
    ]
    for n, row in zip(sizes, found, strict=True):
        yield Row(
            f"    {name + ', ' + activation:22} n={n:6}  {row['seconds']:7.1f} s "
            f"({row['processor']:.1f} s)   memory {row['memory']:.2f} GB",
            "gradients",
            head=f"{name}, {activation}",
            n=n,
            **row,
        )
    clock, processor = (found[1][key] / found[0][key] for key in ("seconds", "processor"))
    yield f"    {'':22} ratio     {clock:7.2f}   ({processor:.2f})"


# --- two processes ---------------------------------------------------------------------------


def passes(name: str, activation: str, path: Path, n: int, count: int) -> dict[str, float] | None:
    """Seconds of some gradients over the samples of all processes; None but in the first."""
    with convex.processes() as group:
        torch.set_num_threads(1)
        X = np.load(path, mmap_mode="r")[:n]
        shards = convex.Shards(group.part(problem_of(name, X, activation)), SHARD, group=group)
        units = units_of(name, shards.problem)
        shards.loss_and_gradient(units)
        group.total(0.0)  # all of them begin together
        started, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            loss, _ = shards.loss_and_gradient(units)
        seconds, used = time.perf_counter() - started, time.process_time() - used
        found = {"seconds": seconds / count, "processor": group.total(used) / count, "loss": loss}
    return found if group.rank == 0 else None


def together(name: str, activation: str, path: Path, n: int, rounds: int) -> Iterator[str]:
    """One process and two in turns, so that what else runs slows down both alike."""
    rows: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for _ in range(rounds):
        for count in rows:
            rows[count].append(apart("passes", name, activation, path, n, 3, processes=count))
    one, two = (min(row["seconds"] for row in rows[count]) for count in (1, 2))
    used = [min(row["processor"] for row in rows[count]) for count in (1, 2)]
    off = abs(rows[1][0]["loss"] / rows[2][0]["loss"] - 1)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    yield Row(
        f"    {name + ', ' + activation:22} n={n}: one process {one:.2f} s ({used[0]:.2f} s), two {two:.2f} s "
        f"({used[1]:.2f} s together), ratio {one / two:.2f}; losses differ by {off:.0e}{load}",
        "processes",
        head=f"{name}, {activation}",
        n=n,
        one=one,
        two=two,
        ratio=one / two,
    )


def tables(quick: bool = False) -> Iterator[str]:
    sizes = (500, 1000) if quick else SIZES
    mixer = (50, 100) if quick else MIXER_SIZES
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.npy"
        write_tokens(path, max(sizes))
        yield (
            f"One full gradient in factored form: {TOKENS} tokens, {FEATURES} features, {CLASSES} "
            f"classes, pooled; {path.stat().st_size / 1e9:.1f} GB of float32 in a file, {SHARD} "
            "samples at a time, one thread"
        )
        yield ""
        for name in HEADS:
            yield from growth(name, "linear", path, mixer if name == "mixer" else sizes, rounds)
        yield from growth("MLP", "gated_relu", path, sizes, rounds)
        yield ""
        yield "The same in one process and in two (gloo), each with one thread"
        yield ""
        for name, activation in (("attention", "linear"), ("MLP", "gated_relu")):
            yield from together(name, activation, path, sizes[0] // 4, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("job", choices=("gradient", "passes"))
    parser.add_argument("rest", nargs="+")
    arguments = parser.parse_args()
    if arguments.job == "gradient":
        name, activation, path, n = arguments.rest
        found = gradient(name, activation, Path(path), int(n))
    else:
        name, activation, path, n, count = arguments.rest
        found = passes(name, activation, Path(path), int(n), int(count))
    if found is not None:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
