"""The annotated shapes hold: the library runs with every annotation checked at each call.

In a process of its own, because the import hook must come before the first import and because
checked annotations would answer bad input before the library's own errors can.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

HOOK = """
from jaxtyping import install_import_hook
install_import_hook(["fourviews.convex", "fourviews.attention"], "beartype.beartype")
import itertools
import torch
from fourviews import attention, convex
"""

CONVEX = """
generator = torch.Generator().manual_seed(0)
for dtype, activation, loss, pool in itertools.product(
    (torch.float32, torch.float64),
    ("linear", "gated_relu", "relu"),
    ("squared", "cross_entropy"),
    (None, "mean"),
):
    X = torch.randn(4, 2, 3, generator=generator, dtype=dtype)
    Y = torch.tensor([0, 1, 1, 0])
    if pool is None:
        Y = Y[:, None].expand(4, 2)
    options = {"n_gates": 5} if activation == "gated_relu" else {}
    problem = convex.MLP(
        X, Y, beta=0.5, activation=activation, loss=loss, pool=pool, **options
    )
    solution = convex.solve(problem, tol=1e-3, max_iterations=300, progress=False)
    network = solution.network()
    convex.from_network(problem, network)
    solution.predict(X)
    if activation != "relu":
        for method in ("fista", "splitting", "frank_wolfe"):
            convex.solve(problem, method=method, max_iterations=20, progress=False)
    if activation == "relu" and loss == "squared" and pool == "mean":
        one = convex.MLP(X, X[:, 0, :1].clone(), beta=0.1, activation="relu", pool="mean")
        convex.solve(one, progress=False)
        convex.solve(one, method="splitting", max_iterations=20, progress=False)
heads = (
    convex.SelfAttention,
    convex.Mixer,
    lambda X, Y, **o: convex.FNO(X, Y, grid=(1, 2), **o),
    lambda X, Y, **o: convex.BlockFNO(X, Y, grid=(1, 2), blocks=2, **o),
)
for head, activation, loss, pool in itertools.product(
    heads, ("linear", "gated_relu", "relu"), ("squared", "cross_entropy"), (None, "mean")
):
    X = torch.randn(3, 2, 2, generator=generator).double()
    Y = torch.tensor([0, 1, 1]) if pool else torch.tensor([[0, 1], [1, 1], [1, 0]])
    options = {} if activation == "linear" else {"n_gates": 3}
    problem = head(X, Y, beta=0.5, activation=activation, loss=loss, pool=pool, **options)
    solution = convex.solve(problem, tol=1e-3, max_iterations=50, progress=False)
    convex.from_network(problem, solution.network())
    solution.predict(X)
    problem.effective_matrix()
    convex.head_count(solution)
    if activation != "relu":
        for method in ("factored", "fista", "splitting", "frank_wolfe"):
            convex.solve(problem, method=method, max_iterations=5, progress=False)
        problem.gram()
K = torch.eye(3).double()
convex.quasi_nuclear_norm(torch.randn(3, 2, generator=generator).double(), K)
"""

ATTENTION = """
x, y = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
for activation, causal in itertools.product(("softmax", "relu", "linear"), (False, True)):
    attention.attention(x, x, x, activation=activation, causal=causal)
    attention.attention(x, x, x, activation=activation, causal=causal, return_weights=True)
attention.attention(x, y, y, mask=torch.ones(5, 3, dtype=torch.bool))
heads = attention.MultiHeadAttention(4, 2)
heads(x)
heads(x, context=y)
"""

WRONG = """
convex.nuclear_norm(torch.randn(3))
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HOOK + script)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_shapes_of_the_convex_core_are_as_annotated() -> None:
    result = run(CONVEX)
    assert result.returncode == 0, result.stderr[-2000:]


def test_shapes_of_attention_are_as_annotated() -> None:
    result = run(ATTENTION)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_wrong_shape_is_noticed() -> None:
    result = run(WRONG)
    assert result.returncode != 0
    assert "TypeCheckError" in result.stderr
