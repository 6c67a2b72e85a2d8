"""Solvers judged by certificates, by CVXPY and by the networks that they stand for."""

from __future__ import annotations

import importlib
import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
import torch

from fourviews import convex
from fourviews.convex.faces import ConeFaces
from fourviews.convex.solution import Neurons
from fourviews.convex.solvers import log
from fourviews.convex.solvers.relu_splitting import relu_bounds

METHODS = ("fista", "splitting", "frank_wolfe")
LAYOUTS = ("rows", "tokens", "pool")
# c = 1 has no classes: squared only.
OUTPUTS = (("squared", 1), ("squared", 3), ("cross_entropy", 3))
KINDS = [
    pytest.param(activation, loss, c, layout, id=f"{activation}-{loss}-{c}-{layout}")
    for activation, (loss, c), layout in itertools.product(
        ("linear", "gated_relu"), OUTPUTS, LAYOUTS
    )
]
# One layout for each loss: what takes long need not see every combination.
SOME = [KINDS[i] for i in (0, 4, 8, 11, 12, 16)]
SMALL = {"n": 5, "s": 2, "d": 3, "n_gates": 3}
AGREEMENT = 1e-5


@pytest.fixture(scope="module")
def reference(make_problem):
    """Problems and their CVXPY solutions, each solved once."""
    known = {}

    def solved(*args, **options):
        key = (args, tuple(sorted(options.items())))
        if key not in known:
            problem = make_problem(*args, **options)
            known[key] = problem, convex.reference(problem)
        return known[key]

    return solved


def assert_consistent(solution):
    """What every solution must satisfy, converged or not."""
    assert solution.lower_bound <= solution.objective
    gap = solution.objective - solution.lower_bound
    zero = solution.problem.to(torch.float64).loss
    at_zero = float(zero.value(torch.zeros_like(zero.target)))
    scale = max(solution.lower_bound, 1e-12 * at_zero)
    expected = gap / scale if scale > 0 else (0.0 if gap == 0 else math.inf)
    assert solution.relative_gap == pytest.approx(expected, rel=1e-12)
    assert solution.converged == (solution.relative_gap <= solution.tol)
    assert solution.objective <= at_zero * (1 + 1e-12)
    objectives = [record.objective for record in solution.history]
    bounds = [record.lower_bound for record in solution.history]
    assert all(b <= a for a, b in itertools.pairwise(objectives))
    # Where both agree to rounding, the bound that is shown is cut to the objective.
    assert all(b >= a * (1 - 1e-12) for a, b in itertools.pairwise(bounds))
    assert all(record.lower_bound <= record.objective for record in solution.history)
    times = [(record.iteration, record.seconds) for record in solution.history]
    assert times == sorted(times)
    assert torch.isfinite(solution.coefficients).all()
    assert solution.coefficients.dtype == solution.problem.X.dtype
    assert tuple(solution.coefficients.shape) == solution.problem.coefficient_shape


def assert_network_matches(solution, *, rel=1e-8):
    """Network, its objective, the way back and predictions."""
    problem = solution.problem
    exact = problem.to(torch.float64)
    network = solution.network()
    value = exact.network_objective(network.double())
    assert value == pytest.approx(solution.objective, rel=rel, abs=rel * 1e-3)
    back = convex.from_network(problem, network)
    size = float(solution.coefficients.abs().max())
    eps = torch.finfo(problem.X.dtype).eps
    if not problem.cones:
        assert torch.allclose(
            back.coefficients, solution.coefficients, atol=100 * eps * size, rtol=0
        )
    assert back.objective <= value * (1 + rel) + 1e-12
    forward = problem.forward(solution.coefficients)
    with torch.no_grad():
        outputs = network(exact.X)
    predicted = solution.predict(problem.X)
    size = float(forward.abs().max()) + float(problem.X.abs().max()) * size
    slack = 1e3 * eps * size
    assert torch.allclose(predicted, forward, atol=slack, rtol=0)
    assert torch.allclose(outputs.to(forward), forward, atol=slack, rtol=0)
    # A ReLU neuron on a face of several cones may come back in another of them.
    assert torch.allclose(problem.forward(back.coefficients), forward, atol=slack, rtol=0)


BY_NAME = [
    pytest.param(*kind.values, method, id=f"{kind.id}-{method}")
    for kind in KINDS
    for method in ("factored", "fista", "newton", "splitting")
    if method != "newton" or kind.values[1:3] == ("squared", 1)
]


@pytest.mark.parametrize("activation, loss, c, layout, method", BY_NAME)
def test_solver_agrees_with_cvxpy(activation, loss, c, layout, method, reference):
    problem, expected = reference(activation, loss, layout=layout, c=c, share=0.4, seed=3, **SMALL)
    solution = convex.solve(problem, method=method, tol=1e-7, progress=False)
    assert solution.converged, str(solution)
    assert_consistent(solution)
    assert solution.objective == pytest.approx(expected.objective, rel=AGREEMENT)
    # The reference's point is feasible, so no true lower bound lies above its objective.
    assert solution.lower_bound <= expected.objective
    assert expected.lower_bound <= solution.objective
    assert_network_matches(solution)


@pytest.mark.parametrize("activation, loss, c, layout", SOME)
def test_frank_wolfe_closes_in_on_the_cvxpy_optimum(activation, loss, c, layout, reference):
    problem, expected = reference(activation, loss, layout=layout, c=c, share=0.4, seed=3, **SMALL)
    # The error falls like 1/k: a gap of 1e-3 is what a thousand iterations are good for.
    solution = convex.solve(
        problem, method="frank_wolfe", tol=1e-3, max_iterations=1000, progress=False
    )
    assert solution.converged, str(solution)
    assert_consistent(solution)
    assert solution.lower_bound <= expected.objective
    assert expected.lower_bound <= solution.objective <= expected.objective * (1 + 1e-3)
    # No more than one singular pair an iteration.
    assert solution.rank <= solution.iterations
    assert_network_matches(solution)


@pytest.mark.parametrize("activation, loss, c, layout", KINDS)
def test_solution_is_zero_from_the_largest_beta_on(activation, loss, c, layout, make_problem):
    problem = make_problem(activation, loss, layout=layout, c=c, share=1.0000001, **SMALL)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    assert solution.converged
    assert float(solution.coefficients.abs().max()) == 0 and solution.rank == 0
    assert_network_matches(solution)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "method, share", [("auto", 0.02), ("auto", 0.3), ("auto", 0.8), ("splitting", 0.6)]
)
def test_relu_with_one_output_agrees_with_cvxpy(layout, share, method, reference):
    problem, expected = reference("relu", layout=layout, c=1, share=share, n=4, s=2, d=2, seed=1)
    solution = convex.solve(problem, method=method, tol=1e-6, progress=False)
    assert solution.converged, str(solution)
    assert_consistent(solution)
    assert solution.objective == pytest.approx(expected.objective, rel=AGREEMENT)
    assert solution.lower_bound <= expected.objective
    assert_network_matches(solution)


@pytest.mark.parametrize(
    "loss, layout", [("squared", "rows"), ("squared", "pool"), ("cross_entropy", "tokens")]
)
def test_relu_with_several_outputs_closes(loss, layout, make_problem):
    options = dict(layout=layout, c=3, share=0.2, n=4, s=2, d=2, seed=2)
    problem = make_problem("relu", loss, **options)
    solution = convex.solve(problem, tol=1e-4, progress=False)
    assert solution.converged and solution.method == "fully corrective"
    assert_consistent(solution)
    assert_network_matches(solution)
    # The relaxation that drops the cones lies below: CVXPY on the gated problem with these gates.
    relaxed = convex.reference(problem.gated_relaxation())
    assert relaxed.lower_bound * (1 - AGREEMENT) <= solution.objective
    # Two features: neurons with 720 directions around the circle are nearly all there are.  Their
    # program, in CVXPY, can only be dearer.
    angles = torch.arange(720, dtype=torch.float64) * (2 * torch.pi / 720)
    units = torch.stack([angles.cos(), angles.sin()], dim=1)
    hidden = torch.relu(problem.first_layer(units)).T
    if layout == "pool":
        hidden = hidden.reshape(4, 2, -1).mean(dim=1)
    V = cp.Variable((720, 3))
    target = problem.loss.target.reshape(len(hidden), 3).numpy()
    F = hidden.numpy() @ V
    if loss == "squared":
        value = 0.5 * cp.sum_squares(F - target)
    else:
        value = cp.sum(cp.log_sum_exp(F, axis=1)) - cp.sum(cp.multiply(F, target))
    program = cp.Problem(cp.Minimize(value + problem.beta * cp.sum(cp.norm(V, 2, axis=1))))
    dense = program.solve(solver=cp.CLARABEL)
    assert solution.lower_bound <= dense * (1 + 1e-7)
    assert solution.objective <= dense * (1 + 1e-6) <= solution.objective * (1 + 1e-3)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_relu_relaxation_keeps_true_bounds(loss, make_problem):
    problem = make_problem("relu", loss, layout="rows", c=3, share=0.2, n=6, d=3, seed=2)
    closed = convex.solve(problem, tol=1e-4, progress=False)
    solution = relu_bounds(problem, progress=False)
    assert solution.method == "gated relaxation"
    assert_consistent(solution)
    assert_network_matches(solution)
    assert solution.lower_bound <= closed.objective
    assert solution.objective >= closed.lower_bound
    relaxed = convex.reference(problem.gated_relaxation())
    assert solution.lower_bound == pytest.approx(relaxed.objective, rel=1e-5)


def test_relu_on_listed_patterns_is_no_dearer_than_one_of_their_gates():
    """The best weights of one neuron are known; the split of the relaxation alone is dearer than
    the zero network here."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    Y = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    problem = convex.MLP(X, Y, beta=1.0, activation="relu", n_gates=12)
    solution = convex.solve(problem, progress=False)
    assert_consistent(solution)
    assert_network_matches(solution)
    single = []
    for gate in problem.gates:
        hidden = torch.relu(X @ (gate / gate.norm()))
        image = Y.T @ hidden
        shrunk = image * (1 - problem.beta / image.norm()).clamp_min(0) / hidden.square().sum()
        error = torch.outer(hidden, shrunk) - Y
        single.append(float(0.5 * error.square().sum() + problem.beta * shrunk.norm()))
    zero = float(0.5 * Y.square().sum())
    assert solution.objective <= min(single) * (1 + 1e-6) < zero
    assert solution.objective >= solution.lower_bound > 0
    assert (problem.pattern_of(solution.network().first.detach()) >= 0).all()


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_relu_where_the_search_over_faces_is_cut_short(loss, make_problem, monkeypatch):
    problem = make_problem("relu", loss, layout="rows", c=3, share=0.2, n=6, d=3, seed=2)
    closed = convex.solve(problem, tol=1e-4, progress=False)
    short = lambda rows, masks: ConeFaces(rows, masks, most=5)  # noqa: E731
    monkeypatch.setattr("fourviews.convex.faces.ConeFaces", short)
    solution = convex.solve(problem, tol=1e-9, progress=False)
    assert_consistent(solution)
    assert_network_matches(solution)
    assert solution.lower_bound <= closed.objective
    assert solution.objective >= closed.lower_bound
    relaxed = convex.solve(problem.gated_relaxation(), tol=1e-7, progress=False)
    assert solution.lower_bound >= relaxed.lower_bound * (1 - 1e-5)


@pytest.mark.parametrize("c", [1, 2])
def test_relu_on_some_patterns_keeps_its_bound_true(c, make_problem):
    full = make_problem("relu", c=c, n=6, d=2, share=0.2, seed=4)
    some = convex.MLP(
        full.X, full.loss.target, beta=full.beta, activation="relu", n_gates=4, seed=1
    )
    everywhere = convex.solve(full, progress=False)
    solution = convex.solve(some, progress=False)
    assert_consistent(solution)
    assert_network_matches(solution)
    # More neurons only help, and the bound holds for all of them.
    assert solution.objective >= everywhere.lower_bound * (1 - 1e-9)
    assert solution.lower_bound <= everywhere.objective


@pytest.mark.parametrize(
    "activation, loss, c, layout",
    KINDS + [pytest.param("relu", "squared", 1, layout, id=f"relu-{layout}") for layout in LAYOUTS],
)
def test_lower_bound_is_below_the_optimum_at_any_prediction(activation, loss, c, layout, reference):
    small = {"n": 4, "s": 2, "d": 2} if activation == "relu" else SMALL
    problem, expected = reference(activation, loss, layout=layout, c=c, share=0.4, seed=3, **small)
    generator = torch.Generator().manual_seed(0)
    centre = problem.forward(expected.coefficients)
    for exponent in (-np.inf, *range(-8, 7)):
        noise = torch.randn(centre.shape, generator=generator, dtype=torch.float64)
        for point in (
            centre + 10.0**exponent * noise,
            10.0**exponent * noise,
            10.0**exponent * centre,
        ):
            bound = convex.lower_bound(problem, point)
            assert np.isfinite(bound)
            assert bound <= expected.objective * (1 + 1e-14)
    # The reference is only as close to the optimum as its own gap.
    assert convex.lower_bound(problem, centre) >= expected.objective * (1 - 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n, d", [(9, 2), (3, 5), (4, 4)])
@pytest.mark.parametrize("method", ["auto", "fista", "splitting"])
def test_without_regularisation_it_is_least_squares(layout, n, d, method, make_problem):
    problem = make_problem(layout=layout, n=n, d=d, c=2, beta=0.0)
    solution = convex.solve(problem, method=method, progress=False)
    rows = problem.X.mean(1) if layout == "pool" else problem.X.reshape(-1, d)
    target = problem.loss.target.reshape(-1, 2)
    fit, *_ = np.linalg.lstsq(rows.numpy(), target.numpy(), rcond=None)
    residual = 0.5 * np.sum((rows.numpy() @ fit - target.numpy()) ** 2)
    scale = 0.5 * float(target.square().sum())
    assert solution.objective == pytest.approx(residual, rel=1e-9, abs=1e-12 * scale)
    assert torch.allclose(solution.coefficients, torch.from_numpy(fit), atol=1e-7)
    assert solution.converged, str(solution)
    assert_consistent(solution)
    assert_network_matches(solution)


@pytest.mark.parametrize("activation", ["gated_relu", "relu"])
@pytest.mark.parametrize("c", [1, 2])
def test_without_regularisation_gates_are_least_squares_too(activation, c, make_problem):
    problem = make_problem(activation, n=9, d=2, c=c, beta=0.0, n_gates=3)
    solution = convex.solve(problem, progress=False)
    features = np.concatenate(
        [m[:, None] * problem.X.numpy() for m in problem.masks.numpy()], axis=1
    )
    target = problem.loss.target.numpy()
    fit, *_ = np.linalg.lstsq(features, target, rcond=None)
    residual = 0.5 * np.sum((features @ fit - target) ** 2)
    assert solution.lower_bound <= residual * (1 + 1e-9) + 1e-12
    assert solution.objective == pytest.approx(residual, rel=1e-6, abs=1e-9)
    assert_consistent(solution)
    assert solution.converged, str(solution)


@pytest.mark.parametrize("activation", ["linear", "gated_relu", "relu"])
def test_cross_entropy_without_regularisation_has_a_valid_bound(activation, make_problem):
    problem = make_problem(activation, "cross_entropy", n=12, d=2, c=3, beta=0.0, n_gates=2)
    solution = convex.solve(problem, max_iterations=300, progress=False)
    assert_consistent(solution)
    # The same loss by a second solver: L-BFGS through autograd.
    relaxed = problem.gated_relaxation() if activation == "relu" else problem
    Z = torch.zeros(relaxed.coefficient_shape, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([Z], max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = relaxed.loss.value(relaxed.forward(Z))
        value.backward()
        return value

    optimiser.step(closure)
    best = float(relaxed.loss.value(relaxed.forward(Z)).detach())
    assert 0 <= solution.lower_bound <= best
    if activation == "linear":
        assert solution.objective == pytest.approx(best, rel=1e-5)


def test_soft_targets_keep_their_entropy_below(make_problem):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    Y = torch.softmax(torch.randn(6, 3, generator=generator, dtype=torch.float64), 1)
    entropy = float(-(Y * Y.log()).sum())
    for beta in (0.0, 1e-2, 0.1):
        problem = convex.MLP(X, Y, beta=beta, loss="cross_entropy")
        solution = convex.solve(problem, max_iterations=2000, progress=False)
        assert_consistent(solution)
        assert entropy * (1 - 1e-9) <= solution.lower_bound <= solution.objective
        if beta > 0:
            assert solution.converged


@pytest.mark.parametrize("activation, loss, c, layout", SOME)
def test_float32(activation, loss, c, layout, make_problem):
    options = dict(layout=layout, c=c, share=0.3, seed=5, **SMALL)
    single = make_problem(activation, loss, dtype=torch.float32, **options)
    double = convex.solve(single.to(torch.float64), tol=1e-9, progress=False)
    for method, tol in (("auto", 1e-5), ("fista", 1e-4), ("frank_wolfe", 1e-2)):
        solution = convex.solve(single, method=method, tol=tol, progress=False)
        assert solution.converged, str(solution)
        assert_consistent(solution)
        # The certificate of a float32 run is about the same problem, in float64.
        assert solution.lower_bound <= double.objective * (1 + 1e-12)
        assert double.lower_bound <= solution.objective * (1 + 1e-12)
        assert_network_matches(solution, rel=1e-5)


def test_relu_in_float32(make_problem):
    single = make_problem("relu", c=1, n=6, d=2, dtype=torch.float32, seed=5)
    solution = convex.solve(single, tol=1e-5, progress=False)
    double = convex.solve(single.to(torch.float64), tol=1e-9, progress=False)
    assert solution.converged, str(solution)
    assert_consistent(solution)
    assert solution.lower_bound <= double.objective * (1 + 1e-12)
    assert_network_matches(solution, rel=1e-5)


DEGENERATE = [
    "zero Y",
    "zero X",
    "one sample",
    "copies",
    "opposite rows",
    "zero rows",
    "copied features",
    "one feature",
]


@pytest.mark.parametrize("what", DEGENERATE)
@pytest.mark.parametrize("activation", ["linear", "gated_relu", "relu"])
@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_degenerate_data(what, activation, c, beta):
    rng = np.random.default_rng(7)
    X, Y = rng.standard_normal((6, 2)), rng.standard_normal((6, c))
    if what == "zero Y":
        Y[:] = 0
    elif what == "zero X":
        X[:] = 0
    elif what == "one sample":
        X, Y = X[:1], Y[:1]
    elif what == "copies":
        X[3:], Y[3:] = X[:3], Y[:3]
    elif what == "opposite rows":
        X[3:] = -2 * X[:3]
    elif what == "zero rows":
        X[::2] = 0
    elif what == "copied features":
        X[:, 1] = X[:, 0]
    elif what == "one feature":
        X = X[:, :1]
    extra = {"n_gates": 4} if activation == "gated_relu" else {}
    problem = convex.MLP(X, Y, beta=beta, activation=activation, **extra)
    solution = convex.solve(problem, progress=False)
    assert_consistent(solution)
    assert_network_matches(solution)
    if activation != "relu" or c == 1:
        assert solution.converged, str(solution)
    if what in ("zero Y", "zero X"):
        assert solution.objective == pytest.approx(0.5 * (Y**2).sum(), abs=1e-300)
        assert solution.rank == 0


@pytest.mark.parametrize("x_scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("y_scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    "activation, c", [("linear", 3), ("gated_relu", 3), ("gated_relu", 1), ("relu", 1)]
)
def test_scales_change_nothing(activation, c, x_scale, y_scale, make_problem):
    # With X -> aX and Y -> bY the optimum with beta -> ab beta scales by b².
    options = dict(n=6, d=2, c=c, share=0.1, seed=6, n_gates=4)
    plain = convex.solve(make_problem(activation, **options), tol=1e-8, progress=False)
    scaled = make_problem(activation, x_scale=x_scale, y_scale=y_scale, **options)
    solution = convex.solve(scaled, tol=1e-6, progress=False)
    assert plain.converged and solution.converged, str(solution)
    assert_consistent(solution)
    assert solution.objective == pytest.approx(y_scale**2 * plain.objective, rel=1e-5)
    exact = scaled.network_objective(solution.network())
    assert exact == pytest.approx(solution.objective, rel=1e-8)


@pytest.mark.parametrize("method", ["factored", "fista", "splitting", "frank_wolfe"])
@pytest.mark.parametrize("x_scale", [1e-6, 1e6])
def test_scales_with_every_method_and_cross_entropy(method, x_scale, make_problem):
    problem = make_problem("gated_relu", "cross_entropy", x_scale=x_scale, share=0.3, **SMALL)
    plain = make_problem("gated_relu", "cross_entropy", share=0.3, **SMALL)
    tol = 1e-3 if method == "frank_wolfe" else 1e-6
    solution = convex.solve(problem, method=method, tol=tol, progress=False)
    assert solution.converged, str(solution)
    expected = convex.solve(plain, tol=1e-8, progress=False)
    assert solution.objective == pytest.approx(expected.objective, rel=2 * tol)


@pytest.mark.parametrize("activation", ["linear", "gated_relu", "relu"])
def test_features_of_mixed_scale(activation, make_problem):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((7, 2)) * np.array([1.0, 1e3]) + np.array([100.0, 0.0])
    Y = rng.standard_normal((7, 1)) + 50.0
    problem = convex.MLP(X, Y, beta=0.5, activation=activation)
    solution = convex.solve(problem, progress=False)
    assert_consistent(solution)
    assert solution.converged, str(solution)
    assert_network_matches(solution)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("activation", ["linear", "gated_relu"])
def test_a_stopped_solve_is_honest(method, activation, make_problem, reference):
    problem, expected = reference(activation, c=3, share=0.1, seed=9, **SMALL)
    for iterations in (1, 2, 5):
        solution = convex.solve(
            problem, method=method, tol=1e-12, max_iterations=iterations, progress=False
        )
        assert not solution.converged
        assert solution.iterations <= iterations
        assert_consistent(solution)
        assert solution.lower_bound <= expected.objective
        assert solution.objective >= expected.lower_bound
        assert "NOT converged" in str(solution)


@pytest.mark.parametrize("tol", [0.5, 1e-2, 1e-5])
def test_converged_means_the_gap_and_nothing_else(tol, make_problem):
    solution = convex.solve(make_problem(c=3, share=0.1), tol=tol, method="fista", progress=False)
    assert solution.converged and solution.relative_gap <= tol
    solution.tol = solution.relative_gap / 2
    assert solution.converged == (solution.relative_gap == 0)


@pytest.mark.parametrize("step", ["line_search", "classic"])
def test_frank_wolfe_converges_no_slower_than_its_rate(step, make_problem):
    problem = make_problem("gated_relu", c=2, share=0.3, **SMALL)
    best = convex.solve(problem, tol=1e-9, progress=False)
    # Curvature of the loss over the ball: the image's largest squared diameter.
    at_zero = 0.5 * float(problem.loss.target.square().sum())
    radius = at_zero / problem.beta
    operator_norm = float(torch.linalg.eigvalsh(problem.gram())[-1])
    curvature = operator_norm * (2 * radius) ** 2
    for k in (10, 50, 300):
        solution = convex.frank_wolfe(problem, tol=0, max_iterations=k, step=step, progress=False)
        assert solution.objective - best.lower_bound <= 2 * curvature / (k + 2)
        assert_consistent(solution)


@pytest.mark.parametrize("activation", ["linear", "gated_relu"])
@pytest.mark.parametrize("method", ["fista", "splitting"])
def test_a_start_saves_iterations_and_changes_no_optimum(activation, method, make_problem):
    problem = make_problem(activation, c=2, share=0.1, **SMALL)
    cold = convex.solve(problem, method=method, tol=1e-8, progress=False)
    warm = convex.solve(problem, method=method, tol=1e-7, start=cold.coefficients, progress=False)
    assert warm.converged and warm.iterations <= cold.iterations
    assert warm.objective == pytest.approx(cold.objective, rel=1e-7)


def test_progress_can_be_switched_off(make_problem, capsys):
    problem = make_problem(c=2)
    for method in METHODS:
        convex.solve(problem, method=method, max_iterations=100, progress=False)
    convex.solve(make_problem("relu", c=1), progress=False)
    convex.solve(make_problem("relu", c=2, n=4, d=2), progress=False)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


@pytest.mark.parametrize("enabled", [True, False, None])
def test_the_bar_counts_every_iteration_and_is_closed(enabled, make_problem, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, *, total, label, enabled):
            self.total, self.label, self.enabled = total, label, enabled
            self.count, self.closed = 0, False
            bars.append(self)

        def update(self, steps):
            self.count += steps

        def set_postfix_str(self, text, refresh=True):
            self.text = text

        def close(self):
            self.closed = True

    # The real bar waits for a second; what it would show must not depend on the machine.
    monkeypatch.setattr(log, "progress_bar", Bar)
    for method in METHODS:
        solution = convex.solve(
            make_problem(c=2), method=method, max_iterations=100, progress=enabled
        )
        bar = bars.pop()
        assert bar.enabled is enabled and bar.total == 100 and bar.closed and bar.label
        assert bar.count == solution.iterations and "gap" in bar.text


def test_the_same_call_gives_the_same_bytes(make_problem):
    for activation in ("linear", "gated_relu", "relu"):
        first, again = (
            convex.solve(make_problem(activation, c=1, n=6, d=2), progress=False) for _ in range(2)
        )
        assert torch.equal(first.coefficients, again.coefficients)
        assert (first.objective, first.lower_bound) == (again.objective, again.lower_bound)


def test_more_gates_never_hurt_and_relu_lies_above_its_relaxation(make_problem):
    relu = make_problem("relu", c=1, n=6, d=2, share=0.2, seed=10)
    gates, beta = relu.gates, relu.beta
    values = []
    for count in (1, 3, len(gates)):
        gated = convex.MLP(
            relu.X, relu.loss.target, beta=beta, activation="gated_relu", gates=gates[:count]
        )
        values.append(convex.solve(gated, tol=1e-8, progress=False).objective)
    assert values == sorted(values, reverse=True)
    assert convex.solve(relu, tol=1e-8, progress=False).objective >= values[-1] * (1 - 1e-7)


@pytest.mark.parametrize(
    "activation, c", [("linear", 3), ("gated_relu", 3), ("relu", 1), ("relu", 2)]
)
def test_predictions_on_new_data_are_the_networks(activation, c, make_problem):
    problem = make_problem(activation, c=c, n=6, d=2, seed=11)
    solution = convex.solve(problem, progress=False)
    new = np.random.default_rng(0).standard_normal((50, 2))
    with torch.no_grad():
        expected = solution.network()(torch.from_numpy(new))
    assert torch.allclose(solution.predict(new), expected, atol=1e-10)
    assert torch.allclose(solution.predict(new[:1]), expected[:1], atol=1e-10)


@pytest.mark.parametrize("activation, c", [("linear", 3), ("gated_relu", 2), ("relu", 1)])
def test_a_trained_network_lifts_without_raising_the_objective(activation, c, make_problem):
    problem = make_problem(activation, c=c, n=6, d=2, seed=12)
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    second = torch.randn(7, c, generator=generator, dtype=torch.float64)
    gates = None
    if activation == "gated_relu":
        gates = problem.gates[torch.arange(7) % len(problem.gates)]
    network = problem.hidden_layers(first, second, gates)
    lifted = convex.from_network(problem, network)
    with torch.no_grad():
        assert torch.allclose(problem.forward(lifted.coefficients), network(problem.X), atol=1e-12)
    assert lifted.objective <= problem.network_objective(network)
    assert lifted.objective >= convex.solve(problem, progress=False).lower_bound


def test_reference_refuses_what_it_cannot_model(make_problem):
    with pytest.raises(NotImplementedError, match="several columns"):
        convex.reference(make_problem("relu", c=2, n=4, d=2))
    full = make_problem("relu", c=1, n=4, d=2)
    some = convex.MLP(full.X, full.loss.target, beta=full.beta, activation="relu", n_gates=2)
    with pytest.raises(NotImplementedError, match="all activation patterns"):
        convex.reference(some)


@pytest.mark.parametrize("seed", range(3))
def test_relu_ends_where_precision_ends(seed: int) -> None:
    """A tolerance of 0 is out of reach; the run stops by itself, with a true and tiny gap."""
    rng = np.random.default_rng(seed)
    problem = convex.MLP(
        rng.standard_normal((9, 2)), rng.standard_normal((9, 1)), beta=0.1, activation="relu"
    )
    solution = convex.solve(problem, tol=0.0, progress=False)
    assert solution.iterations < 500
    assert solution.relative_gap < 1e-9
    assert solution.converged == (solution.relative_gap == 0)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_fewer_neurons_compute_the_same_with_no_more_decay(loss, make_problem):
    several = importlib.import_module("fourviews.convex.solvers.relu_several")
    problem = make_problem("relu", loss, layout="rows", c=2, n=5, d=3, seed=1)
    g = torch.Generator().manual_seed(0)
    first = torch.randn(60, 3, generator=g, dtype=torch.float64)
    second = torch.randn(60, 2, generator=g, dtype=torch.float64)
    first[7], second[7] = 2 * first[3], -second[3]  # two that cancel, and a weak one
    first[9] *= 1e-6
    root = (second.norm(dim=1) / first.norm(dim=1)).sqrt()[:, None]
    first, second = first * root, second / root
    many = Neurons(first, second, problem.pattern_of(first))
    network = lambda units: problem.hidden_layers(units.first, units.second, None)  # noqa: E731
    balanced = first.norm(dim=1).mul(second.norm(dim=1)).sum()
    most = problem.network_objective(network(many)) * (1 + 1e-9)
    few = several.fewer_neurons(problem, many, most)
    assert len(few.first) <= 5 * 2
    with torch.no_grad():
        assert torch.allclose(network(few)(problem.X), network(many)(problem.X), atol=1e-9)
    norm = float(few.first.norm(dim=1).mul(few.second.norm(dim=1)).sum())
    assert norm <= float(balanced) * (1 + 1e-9)
    # A limit that it cannot keep leaves everything as it was.
    assert several.fewer_neurons(problem, many, 0.0) is many
    none = Neurons(first[:0], second[:0], many.block[:0])
    assert several.fewer_neurons(problem, none, 0.0) is none


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
def test_options_reach_the_solver_of_cvxpy_and_a_failure_is_told(make_problem):
    problem = make_problem("linear", n=6, d=3, c=2)
    few = convex.reference(problem, max_iter=3)
    assert few.iterations <= 3 and not few.converged
    assert few.lower_bound <= convex.reference(problem).objective * (1 + 1e-9)
    with pytest.raises(RuntimeError, match="CVXPY's solver failed: .*MOSES"):
        convex.reference(problem, solver="MOSES")
    with pytest.raises(
        TypeError, match="^reference hands colour on to CVXPY's CLARABEL, .*max_iter"
    ):
        convex.reference(problem, colour=1)
