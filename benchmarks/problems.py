"""The fixed lists of problems that benchmarks run on; every one is made from its seed alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fourviews import convex


@dataclass(frozen=True)
class Case:
    """An MLP problem: n samples of s tokens (0: none), d features, c outputs; beta as a share of
    the smallest for which zero is optimal, under the gated relaxation."""

    n: int
    d: int
    c: int
    share: float
    s: int = 0
    loss: str = "squared"
    seed: int = 0

    def __str__(self) -> str:
        tokens = f" s={self.s}" if self.s else ""
        return f"n={self.n}{tokens} d={self.d} c={self.c} β={self.share:g}·β_max {self.loss}"


#: ReLU to optimality: at least half with several outputs, tokens and both losses among them.
RELU = (
    Case(20, 2, 1, 0.1),
    Case(30, 3, 1, 0.1),
    Case(30, 3, 1, 0.01),
    Case(30, 4, 1, 0.1),
    Case(10, 2, 1, 0.1, s=4),
    Case(20, 2, 3, 0.1),
    Case(40, 2, 5, 0.03),
    Case(20, 3, 3, 0.1),
    Case(20, 3, 3, 0.02),
    Case(20, 3, 10, 0.1),
    Case(8, 3, 3, 0.1, s=3),
    Case(20, 4, 3, 0.1),
    Case(30, 4, 3, 0.1),
    Case(20, 3, 3, 0.1, loss="cross_entropy"),
)
#: Larger ones, tabulated with what came of them.
RELU_LARGER = (
    Case(30, 4, 5, 0.03),
    Case(20, 5, 3, 0.1),
    Case(60, 4, 3, 0.1),
    Case(16, 6, 3, 0.1),
)


def targets(case: Case, X: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Outputs of a random ReLU network plus noise, or labels at random."""
    if case.loss == "cross_entropy":
        return torch.randint(0, case.c, X.shape[:-1], generator=generator)
    randn = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    hidden = torch.relu(X @ randn(case.d, 5))
    return hidden @ randn(5, case.c) / 5**0.5 + 0.3 * randn(*X.shape[:-1], case.c)


def build(case: Case, activation: str, n_gates: int | None = None) -> convex.Problem:
    generator = torch.Generator().manual_seed(case.seed)
    shape = (case.n, case.s, case.d) if case.s else (case.n, case.d)
    X = torch.randn(*shape, generator=generator, dtype=torch.float64)
    options = {"loss": case.loss, "activation": activation}
    if case.loss == "cross_entropy":
        options["classes"] = case.c
    if n_gates is not None:
        options["n_gates"] = n_gates
    problem = convex.MLP(X, targets(case, X, generator), beta=1.0, **options)
    relaxed = problem.gated_relaxation() if problem.cones else problem
    return problem.with_beta(case.share * convex.largest_beta(relaxed))
