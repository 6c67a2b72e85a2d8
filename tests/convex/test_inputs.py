"""Bad input: a ValueError that names the argument, before any work starts."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from fourviews import convex
from fourviews.convex import problem as problem_module

X = np.random.default_rng(0).standard_normal((6, 3))
TOKENS = np.random.default_rng(1).standard_normal((6, 4, 3))
Y = np.random.default_rng(2).standard_normal((6, 2))
TOKEN_Y = np.random.default_rng(3).standard_normal((6, 4, 2))
LABELS = np.array([0, 1, 2, 0, 1, 2])
GATES = np.random.default_rng(4).standard_normal((5, 3))
HUGE = np.random.default_rng(5).standard_normal((80, 12))


def changed(array, index, value):
    out = array.copy()
    out[index] = value
    return out


BAD = {
    # X
    "X a list": (dict(X=X.tolist()), "X must be a numpy array or a torch tensor.*list"),
    "X None": (dict(X=None), "X must be"),
    "X integer": (dict(X=X.astype(int)), "X must be float32 or float64.*int64"),
    "X boolean": (dict(X=X > 0), "X must be float32 or float64.*bool"),
    "X half": (dict(X=X.astype(np.float16)), "X must be float32 or float64.*float16"),
    "X complex": (dict(X=X.astype(complex)), "X must be float32 or float64.*complex"),
    "X a vector": (dict(X=X[:, 0]), r"X must have shape.*\(6,\)"),
    "X with four axes": (dict(X=TOKENS[None]), r"X must have shape.*\(1, 6, 4, 3\)"),
    "X without rows": (dict(X=X[:0], Y=Y[:0]), r"X is empty.*\(0, 3\)"),
    "X without features": (dict(X=X[:, :0]), r"X is empty.*\(6, 0\)"),
    "X without tokens": (dict(X=TOKENS[:, :0], Y=TOKEN_Y[:, :0]), "X is empty"),
    "X with NaN": (dict(X=changed(X, (2, 1), np.nan)), "X must be finite"),
    "X with inf": (dict(X=changed(X, (2, 1), -np.inf)), "X must be finite"),
    # Y
    "Y a list": (dict(Y=Y.tolist()), "Y must be a numpy array or a torch tensor.*list"),
    "Y short": (dict(Y=Y[:5]), "Y has 5 samples, X has 6"),
    "Y a scalar": (dict(Y=np.array(1.0)), "Y has no samples, X has 6"),
    "Y boolean": (dict(Y=Y > 0), "Y must hold floats or integer labels.*bool"),
    "Y complex": (dict(Y=Y.astype(complex)), "Y must hold floats or integer labels.*complex"),
    "Y in another precision": (
        dict(Y=Y.astype(np.float32)),
        "Y must have X's dtype.*float64.*float32",
    ),
    "Y with three axes": (dict(Y=Y[:, :, None]), r"float Y must have shape \(n, c\)"),
    "Y without columns": (dict(Y=Y[:, :0]), "c >= 1"),
    "Y with NaN": (dict(Y=changed(Y, (0, 0), np.nan)), "Y must be finite"),
    "Y with inf": (dict(Y=changed(Y, (0, 0), np.inf)), "Y must be finite"),
    "integer Y in two columns": (dict(Y=np.ones((6, 2), dtype=int)), "integer Y are labels"),
    "Y per sample for tokens": (dict(X=TOKENS), "Y has 2 tokens, X has 4.*pool=.mean"),
    "labels per sample for tokens": (
        dict(X=TOKENS, Y=LABELS),
        "Y has no tokens, X has 4.*pool=.mean",
    ),
    "Y per token when pooled": (
        dict(X=TOKENS, Y=TOKEN_Y, pool="mean"),
        r"float Y must have shape \(n, c\)",
    ),
    "vector Y for tokens": (
        dict(X=TOKENS, Y=TOKEN_Y[..., 0]),
        r"float Y must have shape \(n, s, c\)",
    ),
    "label below zero": (dict(Y=LABELS - 1), r"labels in Y must lie in 0 … 1, got -1 … 1"),
    "label too large": (dict(Y=LABELS, classes=2), r"labels in Y must lie in 0 … 1, got 0 … 2"),
    "classes zero": (dict(Y=LABELS * 0, classes=0), "classes must be an integer >= 1, got 0"),
    "classes a float": (dict(Y=LABELS, classes=3.0), "classes must be an integer >= 1, got 3.0"),
    "classes boolean": (dict(Y=LABELS * 0, classes=True), "classes must be an integer"),
    "classes with float targets": (dict(classes=2), "classes goes with integer labels"),
    "one class": (
        dict(Y=LABELS * 0, loss="cross_entropy"),
        "cross_entropy needs at least 2 classes, got 1",
    ),
    "probabilities that sum to 2": (
        dict(Y=np.ones((6, 2)), loss="cross_entropy"),
        "probability vectors.*sum",
    ),
    "negative probabilities": (
        dict(Y=np.tile([1.5, -0.5], (6, 1)), loss="cross_entropy"),
        "probability vectors.*minimum -0.5",
    ),
    "one column of probabilities": (
        dict(Y=np.ones((6, 1)), loss="cross_entropy"),
        "at least 2 classes, got 1",
    ),
    # scalars and names
    "beta negative": (dict(beta=-1e-12), "beta must be a finite number >= 0, got -1e-12"),
    "beta NaN": (dict(beta=np.nan), "beta must be a finite number >= 0"),
    "beta inf": (dict(beta=np.inf), "beta must be a finite number >= 0"),
    "beta a string": (dict(beta="0.1"), "beta must be a finite number"),
    "beta None": (dict(beta=None), "beta must be a finite number"),
    "beta boolean": (dict(beta=True), "beta must be a finite number"),
    "activation unknown": (
        dict(activation="gelu"),
        "activation must be one of 'linear', 'gated_relu', 'relu', got 'gelu'",
    ),
    "activation None": (dict(activation=None), "activation must be one of"),
    "activation unhashable": (dict(activation=["relu"]), "activation must be one of"),
    "activation an array": (
        dict(activation=np.array(["relu", "linear"])),
        "activation must be one of",
    ),
    "loss unknown": (
        dict(loss="hinge"),
        "loss must be one of 'squared', 'cross_entropy', got 'hinge'",
    ),
    "pool unknown": (dict(X=TOKENS, pool="max"), "pool must be one of None, 'mean', got 'max'"),
    "pool without tokens": (dict(pool="mean"), "pool='mean' averages over tokens, but X has none"),
    # gates
    "gates with linear": (dict(gates=GATES), "gates and n_gates belong to"),
    "n_gates with linear": (dict(n_gates=3), "gates and n_gates belong to"),
    "gates and n_gates": (
        dict(activation="gated_relu", gates=GATES, n_gates=3),
        "gates or n_gates, not both",
    ),
    "n_gates zero": (
        dict(activation="gated_relu", n_gates=0),
        "n_gates must be an integer >= 1, got 0",
    ),
    "n_gates negative": (
        dict(activation="relu", n_gates=-2),
        "n_gates must be an integer >= 1, got -2",
    ),
    "n_gates a float": (
        dict(activation="gated_relu", n_gates=2.0),
        "n_gates must be an integer >= 1",
    ),
    "n_gates boolean": (dict(activation="gated_relu", n_gates=True), "n_gates must be an integer"),
    "gates of another width": (
        dict(activation="gated_relu", gates=GATES[:, :2]),
        r"gates must have shape \(P, 3\).*\(5, 2\)",
    ),
    "gates a vector": (
        dict(activation="gated_relu", gates=GATES[0]),
        r"gates must have shape \(P, 3\)",
    ),
    "gates without rows": (dict(activation="gated_relu", gates=GATES[:0]), "P >= 1"),
    "gates a list": (
        dict(activation="gated_relu", gates=GATES.tolist()),
        "gates must be a numpy array",
    ),
    "gates in another precision": (
        dict(activation="gated_relu", gates=GATES.astype(np.float32)),
        "gates must.*float64.*float32",
    ),
    "gates with NaN": (
        dict(activation="gated_relu", gates=changed(GATES, (0, 0), np.nan)),
        "gates must be finite",
    ),
    "seed a float": (dict(activation="gated_relu", seed=0.5), "seed"),
    "more arrangements than feasible": (
        dict(X=HUGE, Y=HUGE[:, :1], activation="relu"),
        f"{convex.arrangement_bound(80, 12):,} activation patterns.*n_samples",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("form", ["numpy", "torch"])
def test_bad_problem(name, form):
    arguments, match = BAD[name]
    arguments = {"X": X, "Y": Y, "beta": 0.1} | arguments
    if form == "torch":
        arguments = {
            key: torch.from_numpy(value.copy())
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiubc"
            else value
            for key, value in arguments.items()
        }
    with pytest.raises(ValueError, match=match):
        convex.MLP(arguments.pop("X"), arguments.pop("Y"), **arguments)


@pytest.mark.parametrize(
    "name", [name for name in BAD if name != "more arrangements than feasible"]
)
def test_no_work_before_the_check(name, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("work started before the input was checked")

    monkeypatch.setattr(problem_module, "arrangements", refuse)
    monkeypatch.setattr(convex.MLP, "_mask", refuse)
    arguments = {"X": X, "Y": Y, "beta": 0.1} | BAD[name][0]
    with pytest.raises(ValueError):
        convex.MLP(arguments.pop("X"), arguments.pop("Y"), **arguments)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("labels", [np.int8, np.uint8, np.int32, np.int64])
def test_labels_of_every_integer_type(dtype, labels):
    problem = convex.MLP(X.astype(dtype), LABELS.astype(labels), beta=0.1, classes=4)
    expected = np.eye(4, dtype=dtype)[LABELS]
    assert np.array_equal(problem.loss.target.numpy(), expected)
    assert problem.X.dtype == problem.loss.target.dtype


def test_scalar_types_of_numpy_and_vector_targets():
    problem = convex.MLP(X, Y[:, 0], beta=np.float32(0.5))
    assert problem.loss.target.shape == (6, 1) and problem.coefficient_shape == (3, 1)
    assert (
        convex.MLP(X, Y, beta=np.int64(1), activation="gated_relu", n_gates=np.int64(3)).beta == 1
    )


def test_inputs_are_not_changed():
    x, y, gates = (
        torch.from_numpy(X.copy()),
        torch.from_numpy(Y.copy()),
        torch.from_numpy(GATES.copy()),
    )
    x.requires_grad_()
    problem = convex.MLP(x, y, beta=0.1, activation="gated_relu", gates=gates)
    convex.solve(problem, progress=False)
    assert np.array_equal(x.detach().numpy(), X) and x.grad is None
    assert np.array_equal(y.numpy(), Y) and np.array_equal(gates.numpy(), GATES)


LINEAR = convex.MLP(X, Y, beta=0.1)
RELU = convex.MLP(X, Y[:, :1], beta=0.1, activation="relu")


@pytest.mark.parametrize(
    "problem, arguments, match",
    [
        (X, {}, "problem must be a convex.Problem.*ndarray"),
        (LINEAR, dict(tol=-1e-9), "tol must be"),
        (LINEAR, dict(tol=np.nan), "tol must be"),
        (LINEAR, dict(tol=np.inf), "tol must be"),
        (LINEAR, dict(tol="small"), "tol must be"),
        (LINEAR, dict(tol=None), "tol must be"),
        (LINEAR, dict(max_iterations=0), "max_iterations must be"),
        (LINEAR, dict(max_iterations=1.5), "max_iterations must be"),
        (LINEAR, dict(max_iterations=True), "max_iterations must be"),
        (LINEAR, dict(method="adam"), "method must be one of"),
        (LINEAR, dict(method="newton"), "one output column"),
        (RELU, dict(method="factored"), "method .factored."),
        (LINEAR, dict(method="factored", rank=0), "rank must be"),
        (LINEAR, dict(method="factored", shard=1.5), "shard must be"),
        (convex.MLP(X, Y, beta=0), dict(method="factored"), "beta > 0"),
        (LINEAR, dict(method=None), "method must be one of"),
        (RELU, dict(method="fista"), "method 'fista'"),
        (RELU, dict(method="frank_wolfe"), "method 'frank_wolfe'"),
        (LINEAR, dict(method="frank_wolfe", step="long"), "step must be"),
        (LINEAR, dict(method="frank_wolfe", radius=-1.0), "radius must be"),
        (LINEAR, dict(method="frank_wolfe", radius=np.nan), "radius must be"),
        (convex.MLP(X, Y, beta=0), dict(method="frank_wolfe"), "beta > 0"),
        (LINEAR, dict(method="fista", start=torch.zeros(2, 2)), "coefficients|start"),
        (LINEAR, dict(method="splitting", start=torch.zeros(2, 2)), "coefficients|start"),
        (LINEAR, dict(method="fista", start=torch.full((3, 2), torch.nan)), "start"),
        (LINEAR, dict(method="splitting", start=torch.full((3, 2), torch.nan)), "start"),
    ],
)
def test_bad_solver_arguments(problem, arguments, match):
    with pytest.raises(ValueError, match=match):
        convex.solve(problem, progress=False, **arguments)


@pytest.mark.parametrize("solver", [convex.fista, convex.splitting, convex.frank_wolfe])
def test_solvers_called_by_name_refuse_relu(solver):
    with pytest.raises(ValueError, match="relu"):
        solver(RELU, progress=False)


COLUMN = convex.MLP(X, Y[:, :1], beta=0.1)
ROWS = torch.ones(2, 4)
UNKNOWN = {
    'solve with method "splitting" has no option colour, shard; there are tol, method, '
    "max_iterations, progress, time_limit, start": lambda: convex.solve(LINEAR, colour=1, shard=2),
    'solve with method "fista" has no option solver; there are tol, method, max_iterations, '
    "progress, time_limit, start, shard, group": lambda: convex.solve(
        LINEAR, method="fista", solver="newton"
    ),
    'solve for activation "relu" has no option start; there are tol, method, max_iterations, '
    "progress, time_limit": lambda: convex.solve(RELU, start=None),
    'regularization_path with method "newton" has no option start, step; there are count, smallest, '
    "tol, method, max_iterations, progress, time_limit": lambda: convex.regularization_path(
        COLUMN, start=None, step=1
    ),
    # At 0 it is another method that is chosen.
    'regularization_path with method "splitting" has no option colour; there are count, smallest, '
    "tol, method, max_iterations, progress, time_limit": lambda: convex.regularization_path(
        COLUMN, [0.0], colour=1
    ),
    "FNO has no option blocks; there are grid, beta, activation, loss, pool, gates, n_gates, "
    "classes, seed": lambda: convex.FNO(TOKENS, TOKEN_Y, grid=(2, 2), beta=0.1, blocks=1),
    "BlockFNO has no option n_gate; there are blocks, grid, beta, activation, loss, pool, gates, "
    "n_gates, classes, seed": lambda: convex.BlockFNO(
        TOKENS, TOKEN_Y, grid=(2, 2), blocks=1, beta=0.1, n_gate=3
    ),
    "SelfAttentionNetwork has no option tokens; there are activation, gates, pool, group": (
        lambda: convex.SelfAttentionNetwork(ROWS, ROWS, activation="linear", tokens=2)
    ),
    "MixerNetwork has no option grid; there are tokens, activation, gates, pool, group": (
        lambda: convex.MixerNetwork(ROWS, ROWS, tokens=2, activation="linear", grid=(1, 2))
    ),
    "FNONetwork has no option tokens; there are grid, blocks, activation, gates, pool, group": (
        lambda: convex.FNONetwork(ROWS, ROWS, grid=(2, 2), activation="linear", tokens=4)
    ),
    "certificate has no option tol; there are slack, failure_probability, seed": (
        lambda: convex.Shards(LINEAR, 2).certificate(
            torch.zeros(3, 2, dtype=torch.float64), tol=1e-3
        )
    ),
}


@pytest.mark.parametrize("said", UNKNOWN)
def test_options_that_are_not_taken_are_named_with_those_that_are(said, monkeypatch):
    monkeypatch.setattr("fourviews.convex.path.largest_beta", None)  # nothing is computed before
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        UNKNOWN[said]()


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3, 2)])
def test_wrong_coefficients_are_refused(shape):
    with pytest.raises(ValueError, match=r"coefficients must have shape \(3, 2\)"):
        LINEAR.forward(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"residual must have the predictions' shape \(6, 2\)"):
        LINEAR.adjoint(torch.zeros(shape, dtype=torch.float64))
    with pytest.raises(ValueError, match="prediction must have the targets' shape"):
        convex.lower_bound(LINEAR, torch.zeros(shape, dtype=torch.float64))


def test_relu_objective_needs_a_network():
    with pytest.raises(ValueError, match="network_objective"):
        RELU.objective(torch.zeros(RELU.coefficient_shape, dtype=torch.float64))


@pytest.mark.parametrize(
    "new, match",
    [
        (X[:, :2], r"X must have shape \(n, 3\)"),
        (X.astype(np.float32), "dtype"),
        (TOKENS, "X must have shape"),
        (X[:0], "X is empty"),
        (changed(X, (0, 0), np.nan), "X must be finite"),
        (X.tolist(), "X must be a numpy array"),
    ],
)
def test_bad_data_for_predictions(new, match):
    with pytest.raises(ValueError, match=match):
        convex.solve(LINEAR, progress=False).predict(new)


def network(first, second, **options):
    return convex.MLPNetwork(
        torch.ones(first, dtype=torch.float64), torch.ones(second, dtype=torch.float64), **options
    )


@pytest.mark.parametrize(
    "problem, net, match",
    [
        (LINEAR, network((2, 3), (2, 2), activation="relu"), "activation 'relu'"),
        (LINEAR, network((2, 3), (2, 2), activation="linear", pool="mean"), "pool 'mean'"),
        (LINEAR, network((2, 4), (2, 2), activation="linear"), r"\(m, 3\).*\(2, 4\)"),
        (LINEAR, network((2, 3), (2, 1), activation="linear"), r"\(m, 2\).*\(2, 1\)"),
    ],
)
def test_networks_of_another_problem_are_refused(problem, net, match):
    with pytest.raises(ValueError, match=match):
        convex.from_network(problem, net)


def test_units_with_patterns_of_no_gate_are_refused():
    gated = convex.MLP(X, Y, beta=0.1, activation="gated_relu", gates=GATES[:1])
    net = network((1, 3), (1, 2), activation="gated_relu", gates=-torch.from_numpy(GATES[:1]))
    with pytest.raises(ValueError, match="unit 0 has an activation pattern"):
        convex.from_network(gated, net)


@pytest.mark.parametrize(
    "first, second, options, match",
    [
        ((2, 3), (3, 1), dict(activation="linear"), "first has 2 units, second has 3"),
        ((2, 3), (2, 1), dict(activation="gated_relu"), "gates are needed"),
        ((2, 3), (2, 1), dict(activation="relu", gates=torch.zeros(2, 3)), "gates are needed"),
        ((2, 3), (2, 1), dict(activation="gated_relu", gates=torch.zeros(1, 3)), "gates must have"),
        ((2, 3), (2, 1), dict(activation="tanh"), "activation"),
        ((2, 3), (2, 1), dict(activation="linear", pool="max"), "pool"),
    ],
)
def test_bad_networks_are_refused(first, second, options, match):
    with pytest.raises(ValueError, match=match):
        network(first, second, **options)


@pytest.mark.parametrize("threshold", [-1.0, float("nan"), float("inf")])
def test_bad_thresholds_are_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        convex.singular_value_threshold(torch.eye(2), threshold)


@pytest.mark.parametrize("function", [convex.project_cone, convex.cone_decomposition])
@pytest.mark.parametrize(
    "vector, K",
    [
        (torch.ones(2), torch.ones(3, 3)),
        (torch.ones(2, 1), torch.ones(3, 2)),
        (torch.ones(2), torch.ones(2)),
        (torch.tensor([1.0, torch.nan]), torch.ones(3, 2)),
        (torch.ones(2), torch.full((3, 2), torch.inf)),
    ],
)
def test_bad_cones_are_refused(function, vector, K):
    with pytest.raises(ValueError, match="K"):
        function(vector, K)


@pytest.mark.parametrize(
    "Z, K",
    [
        (torch.ones(2), torch.ones(3, 2)),
        (torch.ones(2, 2), torch.ones(3, 3)),
        (torch.full((2, 2), torch.nan), torch.ones(3, 2)),
    ],
)
def test_bad_blocks_are_refused(Z, K):
    with pytest.raises(ValueError, match="Z|K"):
        convex.quasi_nuclear_norm(Z, K)


HEADS = {
    "mlp": convex.MLP,
    "attention": convex.SelfAttention,
    "mixer": convex.Mixer,
    "fno": lambda *data, **options: convex.FNO(*data, grid=(2, 2), **options),
    "block_fno": lambda *data, **options: convex.BlockFNO(*data, grid=(2, 2), blocks=2, **options),
}
FOUR = np.random.default_rng(6).standard_normal((3, 4, 2))
HEAD_BAD = {
    "NaN": (dict(X=changed(FOUR, (0, 0, 0), np.nan)), "X must be finite"),
    "X without samples": (dict(X=FOUR[:0], Y=FOUR[:0]), "X is empty"),
    "X half": (dict(X=FOUR.astype(np.float16)), "X must be float32 or float64"),
    "label too large": (dict(Y=np.full((3, 4), 2), classes=2), "labels in Y must lie in 0 … 1"),
    "label below zero": (dict(Y=np.full((3, 4), -1), classes=2), "labels in Y must lie in"),
    "labels that are no numbers of classes": (
        dict(Y=np.full((3, 4), 10**10)),
        "number the classes",
    ),
    "Y short": (dict(Y=FOUR[:, :3]), "Y has 3 tokens, X has 4"),
    "X huge": (dict(X=1e155 * FOUR), "X must be of another scale.*too large for float64"),
    "X huge, float32": (
        dict(X=(1e37 * FOUR).astype(np.float32), Y=FOUR.astype(np.float32)),
        "X must be of another scale.*too large for float32",
    ),
    "X tiny": (dict(X=1e-160 * FOUR), "X must be of another scale.*too small for float64"),
    "Y huge": (dict(Y=1e155 * FOUR), "Y must be of another scale"),
    "both large": (
        dict(X=1e40 * FOUR, Y=1e120 * FOUR),
        "X and Y together must be of another scale",
    ),
}


@pytest.mark.parametrize("case", HEAD_BAD)
@pytest.mark.parametrize("head", HEADS)
def test_every_head_refuses_bad_data(head, case):
    changes, match = HEAD_BAD[case]
    arguments = {"X": FOUR, "Y": FOUR} | changes
    with pytest.raises(ValueError, match=match):
        HEADS[head](arguments.pop("X"), arguments.pop("Y"), beta=0.1, **arguments)


@pytest.mark.parametrize("head", HEADS)
def test_scale_of_the_data_does_not_matter(head):
    """Far from one and still in range: the same problem in other units."""
    degree = 3 if head == "attention" else 1
    expected = convex.solve(HEADS[head](FOUR, FOUR, beta=0.1), progress=False)
    for scale in (1e-20, 1e20):
        problem = HEADS[head](scale * FOUR, FOUR, beta=0.1 * scale**degree)
        for method in ("splitting", "factored"):
            solution = convex.solve(problem, method=method, progress=False)
            assert solution.converged, (scale, method)
            assert solution.objective == pytest.approx(expected.objective, rel=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_refuses_other_precisions_and_outputs(head):
    problem = HEADS[head](FOUR, FOUR, beta=0.1)
    Z = torch.zeros(problem.coefficient_shape)
    with pytest.raises(ValueError, match="coefficients must have the data's dtype.*float32"):
        problem.forward(Z)
    with pytest.raises(ValueError, match="residual must have the data's dtype.*float32"):
        problem.adjoint(torch.from_numpy(FOUR).float())
    with pytest.raises(ValueError, match="coefficients must be finite"):
        problem.objective(Z.double() * np.nan)
    with pytest.raises(ValueError, match="prediction must be finite"):
        convex.lower_bound(problem, torch.from_numpy(FOUR) * np.nan)
    net = convex.solve(problem, progress=False).network()
    with pytest.raises(ValueError, match="X must have the weights' dtype"):
        net(torch.from_numpy(FOUR).float())
    more = HEADS[head](FOUR, np.concatenate([FOUR, FOUR], axis=2), beta=0.1)
    with pytest.raises(ValueError, match=r"outputs of the targets' shape \(3, 4, 4\)"):
        more.network_objective(net)


W = torch.zeros


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: convex.SelfAttentionNetwork(W(2, 5), W(2, 4), activation="linear"), "shapes"),
        (lambda: convex.SelfAttentionNetwork(W(2, 4), W(2, 3), activation="linear"), "shapes"),
        (lambda: convex.SelfAttentionNetwork(W(4), W(4), activation="linear"), "two axes"),
        (
            lambda: convex.SelfAttentionNetwork(GATES, W(4, 4), activation="linear"),
            "a tensor of floats",
        ),
        (
            lambda: convex.SelfAttentionNetwork(W(2, 4).long(), W(2, 4), activation="linear"),
            "floats",
        ),
        (
            lambda: convex.SelfAttentionNetwork(W(2, 4), W(2, 4).double(), activation="linear"),
            "one dtype",
        ),
        (lambda: convex.MixerNetwork(W(2, 9), W(2, 2), activation="linear", tokens=3.0), "tokens"),
        (
            lambda: convex.MixerNetwork(W(2, 8), W(2, 2), activation="linear", tokens=3),
            "first must",
        ),
        (
            lambda: convex.MixerNetwork(
                W(2, 9), W(2, 4), activation="linear", tokens=3
            ).feature_weights(3),
            "d must divide",
        ),
        (
            lambda: convex.FNONetwork(W(2, 7), W(2, 2), activation="linear", grid=(1, 3)),
            "first must",
        ),
        (lambda: convex.FNONetwork(W(2, 6), W(2, 2), activation="linear", grid=3), "grid must"),
        (
            lambda: convex.FNONetwork(W(2, 6), W(2, 2), activation="linear", grid=(1, 3), blocks=0),
            "blocks",
        ),
        (
            lambda: convex.FNONetwork(W(2, 6), W(2, 2), activation="linear", grid=(1, 3), blocks=2),
            "group must.*None",
        ),
        (
            lambda: convex.FNONetwork(
                W(2, 6),
                W(2, 2),
                activation="linear",
                grid=(1, 3),
                blocks=2,
                group=torch.tensor([0, 2]),
            ),
            "group must hold one of 0 … 1",
        ),
        (lambda: convex.circulant(FOUR, (2, 2)), "X must be a tensor"),
    ],
)
def test_bad_weights_of_heads_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_what_is_no_solution_network_or_tensor_is_named():
    problem = convex.MLP(X, Y, beta=0.1)
    network = convex.solve(problem, progress=False).network()
    for call, match in (
        (lambda: convex.head_count(problem), "solution must be a convex.Solution.*MLP"),
        (lambda: convex.from_network(network, problem), "a problem and a network.*MLPNetwork"),
        (lambda: convex.lower_bound(problem, Y), "prediction must be a torch tensor.*ndarray"),
        (lambda: network(X), "X must be a torch tensor, got ndarray"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
