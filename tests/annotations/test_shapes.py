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
install_import_hook(
    ["fourviews.convex", "fourviews.attention", "fourviews.projection"], "beartype.beartype"
)
import itertools
import torch
from fourviews import attention, convex, projection
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

PROJECTION = """
x, ks = torch.randn(2, 3, 5, requires_grad=True), torch.randint(1, 5, (2, 3))
mask = torch.ones(3, 5, dtype=torch.bool)
for k in (2, ks):
    y, info = projection.lml(x, k, mask=mask, return_info=True)
    y.sum().backward()
    for function in (projection.lml_logits, projection.sparsemax, projection.hard_topk):
        function(x, k, mask=mask, infeasible="nan")
projection.softmax(x, 2, 1, mask=mask)
projection.LML(2)(x, mask)
projection.LML(2)(torch.randn(5))
projection.exactly_k_marginals(x, 2)
label, labels = torch.randint(0, 5, (2, 3)), torch.rand(2, 3, 5) < 0.5
weight = torch.ones(5)
for reduction in ("none", "sum", "mean"):
    options = {"weight": weight, "reduction": reduction}
    for form in (labels, label, label[..., None]):
        projection.lml_loss(x, form, 2, **options)
    projection.lml_loss(x, labels, ks, mask=mask | labels, **options)
    projection.topk_entropy_loss(x, label, 2, **options)
    projection.smooth_topk_svm_loss(x, label, 2, **options)
projection.topk_recall(x, labels, 2)
for constrained in (False, True):
    projection.relation_recall(x, labels, 4, constrained=constrained)
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


def test_shapes_of_projections_are_as_annotated() -> None:
    result = run(PROJECTION)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_wrong_shape_is_noticed() -> None:
    result = run(WRONG)
    assert result.returncode != 0
    assert "TypeCheckError" in result.stderr
