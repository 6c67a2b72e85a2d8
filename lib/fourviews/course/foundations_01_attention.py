"""Checks of the lesson «Attention»."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from ..attention import attention
from .checking import LargestResult, close, exercise, require, run, tensor
from .draws import between, gaussian


@exercise("ex-attention-temperature")
def limit_of_sharpness(generator: Generator, sharpest: Callable) -> None:
    """Softmax at a sharpness whose powers are zeros and ones, with and without ties."""
    q, v = between(generator, 3, 4), between(generator, 2, 3)
    k, d = between(generator, 6, 9), 5
    V = gaussian(generator, k, v)

    # Scores of either sign, a different order in each row, at least 1 apart.
    orders = torch.stack([torch.randperm(k, generator=generator) for _ in range(q)])
    scores = orders.double() - k + 1.5
    K = torch.linalg.qr(gaussian(generator, k, k)).Q
    Q = scores @ K
    out = tensor(run(sharpest, Q, K, V), (q, v), "sharpest(Q, K, V)")
    require(
        not torch.allclose(out, V.mean(0).expand(q, v)),
        "sharpest(Q, K, V) is the mean of all values: that is the limit as t tends to 0",
    )
    wanted = attention(Q, K, V, scale=1000.0)
    close(out, wanted, "a query whose largest score belongs to one key does not get its value")

    # Whole numbers: equal scores are equal to the last digit.
    K = torch.randint(-3, 4, (k, d), generator=generator).double()
    Q = torch.randint(-3, 4, (q, d), generator=generator).double()
    Q[0] = torch.where(Q[0].abs().sum() > 0, Q[0], torch.ones(d, dtype=Q.dtype))
    first = int((K @ Q[0]).argmax())
    K[(first + 1) % k] = K[first]
    out = tensor(run(sharpest, Q, K, V), (q, v), "sharpest(Q, K, V)")
    wanted = attention(Q, K, V, scale=1000.0)
    close(
        out[0],
        wanted[0],
        "a query whose largest score is shared by several keys does not get the mean of their values",
    )
    close(out, wanted, "sharpest is not what softmax attention tends to")


@exercise("ex-attention-recurrent")
def one_reading(generator: Generator, read_once: Callable) -> None:
    """Causality, the token itself, the masked matrix, and no matrix of all scores."""
    s, d, v = between(generator, 7, 9), between(generator, 2, 3), between(generator, 4, 5)
    Q, K, V = gaussian(generator, s, d), gaussian(generator, s, d), gaussian(generator, s, v)
    out = tensor(run(read_once, Q, K, V), (s, v), "read_once(Q, K, V)", dtype=Q.dtype)
    require(bool(out.any()), "read_once(Q, K, V) is zero")

    later = s // 2
    others = [x.clone() for x in (Q, K, V)]
    for x in others:
        x[later:] = gaussian(generator, *x[later:].shape)
    changed = tensor(run(read_once, *others), (s, v), "read_once(Q, K, V)")
    close(
        changed[:later],
        out[:later],
        "early outputs change when later tokens are changed: each sees itself and what stands before",
    )
    require(bool(out[0].any()), "the output of the first token is zero: a token sees itself, too")
    wanted = (Q @ K.T / math.sqrt(d)).tril() @ V
    close(out, wanted, "read_once is not causal linear attention")

    s = 40 + between(generator, 0, 9)
    Q, K, V = gaussian(generator, s, d), gaussian(generator, s, d), gaussian(generator, s, v)
    with LargestResult() as largest:
        run(read_once, Q, K, V)
    require(
        largest.numbers <= s * v,
        f"for {s} tokens with {d} features and {v} values the loop makes a tensor of "
        f"{largest.numbers} numbers: a memory of {d} times {v} is enough",
    )


def _causal_layer(X: Tensor) -> Tensor:
    """Row by row, each from the rows up to its own."""
    rows = []
    for i in range(len(X)):
        weights = torch.softmax(X[: i + 1] @ X[i] / math.sqrt(X.shape[1]), 0)
        rows.append(weights @ X[: i + 1])
    return torch.stack(rows)


@exercise("ex-attention-order")
def swap_of_two(generator: Generator, last: Callable, tokens: Tensor) -> None:
    """The last row for random tokens, then what the swap does to the student's three."""
    s, d = between(generator, 4, 6), between(generator, 2, 3)
    X = gaussian(generator, s, d)
    one, two = _causal_layer(X), _causal_layer(_causal_layer(X))
    name = "last(X, layers)"
    layers = 1
    close(
        tensor(run(last, X, layers), (d,), name),
        one[-1],
        "last(X, 1) is not the last row after one causal layer",
    )
    layers = 2
    close(
        tensor(run(last, X, layers), (d,), name),
        two[-1],
        "last(X, 2) is not the last row after two causal layers",
    )

    T = tensor(tokens, (3, None), "tokens").double()
    require(T.shape[1] > 0, "tokens has no features; it needs one or more")
    require(float(T.abs().max()) <= 2, "tokens has entries beyond -2 and 2")
    require(
        not torch.equal(T[0], T[1]), "the first two tokens are the same: the swap changes nothing"
    )
    swapped = T[[1, 0, 2]]
    moved = (_causal_layer(_causal_layer(T)) - _causal_layer(_causal_layer(swapped)))[-1]
    moved = float(moved.abs().max())
    require(
        moved > 0.1,
        f"after two layers the swap of the first two tokens moves the last row by {moved:.2g}, "
        "it needs more than 0.1",
    )


def _numbers_in(memory: Any) -> int:
    """How many numbers a memory holds; words if it is not made of tensors."""
    if isinstance(memory, Tensor):
        return memory.numel()
    require(
        isinstance(memory, tuple) and all(isinstance(part, Tensor) for part in memory),
        f"a memory is a tensor or a tuple of tensors, yours is a {type(memory).__name__}"
        + (" that holds something else" if isinstance(memory, tuple) else ""),
    )
    return sum(part.numel() for part in memory)


@exercise("ex-attention-stream")
def merged_memories(
    generator: Generator, read: Callable, merge: Callable, answer: Callable
) -> None:
    """One pair, one reader, two readers of different lengths, many readers in any order."""
    v = between(generator, 2, 4)
    n = between(generator, 9, 12)
    scores, values = 2 * gaussian(generator, n), gaussian(generator, n, v)

    def memory_of(places: list[int]) -> Any:
        memory = None
        for j in places:
            score, value = scores[j], values[j]
            new = run(read, score, value)
            first, second = memory, new
            memory = new if memory is None else run(merge, first, second)
            kept = _numbers_in(memory)
            require(
                kept <= v + 2,
                f"a memory holds {kept} numbers, values have {v}: it may hold {v + 2}",
            )
        return memory

    def output(memory: Any) -> Tensor:
        return tensor(run(answer, memory), (v,), "answer(memory)")

    def attended(places: list[int]) -> Tensor:
        return attention(torch.ones(1, 1).double(), scores[places, None], values[places])[0]

    close(output(memory_of([0])), values[0], "after one pair the answer is not its value")
    up = scores.argsort().tolist()
    down = up[::-1]
    close(
        output(memory_of(down)),
        attended(down),
        "one reader gets a wrong answer, even when the scores never rise",
    )
    close(
        output(memory_of(up)),
        attended(up),
        "one reader gets a wrong answer when a new score is larger than those before",
    )
    cut = between(generator, 2, 3)
    everything = list(range(n))
    parts = memory_of(everything[:cut]), memory_of(everything[cut:])
    for (first, second), order in ((parts, "first"), (parts[::-1], "last")):
        close(
            output(run(merge, first, second)),
            attended(everything),
            f"two readers, one of {cut} pairs and one of {n - cut}: the merged answer is wrong "
            f"when the shorter part comes {order}",
        )
    pile = [memory_of([j]) for j in torch.randperm(n, generator=generator).tolist()]
    while len(pile) > 1:
        first, second = pile.pop(0), pile.pop(0)
        pile.append(run(merge, first, second))
    close(output(pile[0]), attended(everything), "many readers, merged two at a time, get it wrong")
