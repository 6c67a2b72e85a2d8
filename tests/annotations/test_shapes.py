"""The annotated shapes hold: the library runs with every annotation checked at each call.

In a process of its own, because the import hook must come before the first import and because
checked annotations would answer bad input before the library's own errors can.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

HOOK = """
from jaxtyping import install_import_hook
install_import_hook(
    [
        "fourviews.convex",
        "fourviews.attention",
        "fourviews.data.features",
        "fourviews.data.generated_scenes",
        "fourviews.data.scenes",
        "fourviews.projection",
        "fourviews.spline",
        "fourviews.unrolled",
    ],
    "beartype.beartype",
)
import itertools
import torch
from fourviews import attention, convex, data, projection, spline, unrolled
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
        for method in ("fista", "splitting", "frank_wolfe", "factored"):
            convex.solve(problem, method=method, max_iterations=20, progress=False)
        if loss == "squared":
            one = convex.MLP(
                X, X[..., 0, :1].clone() if pool else X[..., :1].clone(), beta=0.1,
                activation=activation, pool=pool, **options,
            )
            convex.solve(one, method="newton", progress=False)
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
for task, dtype in (("pooled", torch.float16), ("mosaic", torch.float32)):
    some = convex.HeadsConfig(
        classes=2, train=4, holdout=4, test=4, seeds=1, grid=(2, 2), features=2, blocks=2, gates=2,
        attention_gates=2, shares=(0.5,), tol=0.5, task=task, method="factored", shard=3,
    )
    label = torch.arange(16) % 2
    X = torch.randn(16, 4, 3, generator=generator).to(dtype)
    given = convex.TokenSet(
        X, label, X[:8], label[:8], grid=(2, 2), classes=2, data="noise", backbone="none"
    )
    convex.heads_experiment(some, given, progress=False)
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

UNROLLED = """
generator = torch.Generator().manual_seed(0)
for dtype, lead in itertools.product((torch.float32, torch.float64), ((), (2,))):
    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    Y, X, W, H = randn(*lead, 5, 3), randn(*lead, 5, 3), randn(3, 2), randn(3, 3)
    tokens = torch.arange(5) < torch.full((*lead, 1), 4)
    for rho in unrolled.RHOS:
        options = dict(weight=W, graph=torch.ones(5, 5, dtype=torch.bool), tokens=tokens)
        unrolled.attention_energy(Y, rho, 0.5, W, tokens=tokens, anchor=X, anchoring=1.0)
        unrolled.attention_step(Y, rho, 0.5, W, relaxation=0.5, anchor=X, anchoring=1.0)
        energy = unrolled.AttentionEnergy(rho, confinement=0.5, **options)
        energy.weights(Y), energy.value_and_step(Y), energy.quadratic(Y, X)
        energy.safe_relaxation(Y), unrolled.irls_step(energy, Y)
        unrolled.normalised_attention_step(energy, Y)
    total = unrolled.SumEnergy(
        (energy, unrolled.FeedForwardEnergy(H), unrolled.HopfieldEnergy(randn(4, 3))),
        unrolled.NonNegative(tokens),
    )
    total.step(Y), total.value(Y), total.majoriser(Y)(X), unrolled.sphere_step(total, Y)
    unrolled.MLPEnergy(H, 0.1).step(Y), unrolled.MLPEnergy(H, 0.1).value(Y)
    unrolled.layer_norm(Y), unrolled.constant_norm(W), unrolled.half_squared_distances(Y)
    for step, relu in itertools.product(("joint", "alternating", "preconditioned"), (False, True)):
        model = unrolled.UnrolledTransformer(3, 2, step=step, relu=relu, anchoring=0.1, dtype=dtype)
        model(X, tokens, return_energies=True)
        [c.status() for c in unrolled.descent_certificate(model, X, tokens)]
    theirs = unrolled.PublishedTransformer(3, 2, anchored=True, dtype=dtype)
    texts = [randn(4, 3), randn(2, 3)]
    theirs(X), unrolled.energies_along(theirs, texts), unrolled.energies_along(model, texts).mean
    classifier = unrolled.TextClassifier(model, 3)
    unrolled.train_online(classifier, texts, torch.tensor([0, 1]), steps=2)
    unrolled.fit_readout(classifier, texts, torch.tensor([0, 1]), steps=2)
    classifier.accuracy(texts, torch.tensor([0, 1]))
B = randn(5, 3)
f, g, h = unrolled.matrix_pair(randn(4, 5), W, B, B)
unrolled.alternate(f, g, B, 0.1, 0.1, 2, relu=True).report()
unrolled.apollonius(randn(3), randn(3), 0.5).contains(randn(7, 3))
unrolled.proximal_kind(torch.relu, torch.linspace(-1, 1, 9))
unrolled.proximal_penalty(torch.relu, torch.linspace(-1, 1, 9))
unrolled.asymmetric_attention(B, W, W), unrolled.asymmetric_linear(H)
unrolled.implicit_minimiser(lambda Y: Y - B, B)
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
generator = torch.Generator().manual_seed(0)
features, classes = torch.randn(48, 3), torch.arange(48) % 6
group = projection.similar_classes(torch.randn(6, 2), 3)
projection.confuse_labels(classes, group, 0.5, generator)
noisy = projection.NoisyLabels(features, classes, features, classes, k=2)
noisy.run(projection.topk_losses(2), rate=0.5, seed=0, decays=(0.1, 1.0), iterations=3)
pairs = projection.Pairs.of(data.generated_scenes(12, max_objects=4))
losses = projection.relation_losses(5)
projection.compare_relation_losses(
    pairs[:6], pairs[6:9], pairs[9:], losses, kinds=24, seed=0, epochs=1, width=4
)
"""

SPLINE = """
import numpy as np
from scipy import interpolate

X = spline.variables(2, 2)
f = spline.maximum(X[0, 0] * X[1, 1], X[0, 1], 1) - spline.minimum(X[1, 0], 2) ** 3
for dtype in (torch.float32, torch.float64):
    x = torch.randn(4, 2, 2, dtype=dtype)
    encoder = spline.compile_encoder(f, dtype=dtype)
    decoder = spline.compile_decoder(np.array([[X[0, 0]], [f]]), dtype=dtype)
    for module in (encoder, decoder):
        module(x)
        module.dense()(x)
        module.exact([[1, 2], [3, 4]])
        str(module.report)
    spline.smooth(encoder, "softplus", 10.0)(x)
    spline.smoothing_errors(encoder, x, [1.0, 10.0])
    f(x)
spline.degree(encoder)
spline.measured_degree(encoder, (2, 2))
spline.pieces(encoder, (np.zeros((2, 2)), np.ones((2, 2))))
x, y = spline.variables(1, 2)[0]
g = spline.maximum(x * y, x, 0)
spline.normal_form(g).expression()([1, 2])
spline.linear_after_veronese(g)
spline.veronese_encoder(2, 2)
partition = spline.SignPartition([x - y])
spline.PiecewisePolynomial(partition, {(None,): x})([[1, 2]])
partition.lines()
spline.triangulation_partition(np.array([[0, 0], [1, 0], [0, 1]]), [[0, 1, 2]]).lines()
points = np.random.default_rng(0).uniform(size=(12, 2))
for shape in ((12,), (12, 2)):
    flat = interpolate.LinearNDInterpolator(points, np.ones(shape))
    spline.compile_encoder(flat)
    spline.cpwl_network(flat)
solid = np.random.default_rng(0).uniform(size=(9, 3))
spline.compile_encoder(interpolate.LinearNDInterpolator(solid, solid[:, 0] ** 2))
spline.cpwl_network(spline.maximum(x, y, x + y, 1 - x, 2 * y))
curve = interpolate.CubicSpline(np.arange(4.0), np.ones((4, 2)))
spline.compile_encoder(curve, outside="extend")(torch.zeros(3, 1, 1, dtype=torch.float64))
t = np.arange(6.0)
spline.compile_encoder(interpolate.NdBSpline((t, t), np.ones((4, 4)), 1))
spline.network_block(attention.FeedForward(2, 3), 4)(torch.randn(4, 2))
counter = spline.counterexample()
one, other = spline.twin_points(np.eye(5, dtype=int).tolist(), 1)
counter(*one), counter.max_definable_part()
spline.product_of_positive_parts()
"""

FEATURES = """
import os
import sys
from pathlib import Path

sys.path.insert(0, os.environ["TESTS_OF_DATA"])
import networks
from fourviews.data.features import timm_networks

networks.install(Path(os.environ["FOURVIEWS_CACHE"]), name="vit-s16")
pixels = torch.randint(0, 256, (5, 20, 30, 3), dtype=torch.uint8)
images = data.ImageSet(
    pixels, torch.zeros(5, dtype=torch.int64), ("a",), data.Source("x", "cache", None), ""
)
timm_networks.prepare(pixels)
for dtype, given in itertools.product((torch.float16, torch.float32), (pixels, images, images[:0])):
    data.image_tokens(given, backbone="vit-s16", dtype=dtype)
    store = data.token_store(given, backbone="vit-s16", dtype=dtype)
    store.mean(), list(store.batches(2)), store[1:], repr(store)
    if len(store):
        for how, on in (("pca", False), ("average", True)):
            map_ = data.reduce_features(store, to=3, how=how, scale=on, constant=on)
            for tokens in (store, store[:2], store.mean(), store[:2].tokens, store[:0].tokens):
                map_.apply(tokens, dtype=dtype)
            repr(map_), map_.digest
            data.reduce_features(store[:].tokens.double(), to=3, how=how)
data.pooled_features(images, backbone="vit-s16")
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


def test_shapes_of_the_unrolled_view_are_as_annotated() -> None:
    result = run(UNROLLED)
    assert result.returncode == 0, result.stderr[-2000:]


def test_shapes_of_projections_are_as_annotated() -> None:
    result = run(PROJECTION)
    assert result.returncode == 0, result.stderr[-2000:]


def test_shapes_of_the_spline_view_are_as_annotated() -> None:
    result = run(SPLINE)
    assert result.returncode == 0, result.stderr[-2000:]


def test_shapes_of_features_are_as_annotated(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path))
    monkeypatch.setenv("TESTS_OF_DATA", str(Path(__file__).resolve().parents[1] / "data"))
    result = run(FEATURES)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_wrong_shape_is_noticed() -> None:
    result = run(WRONG)
    assert result.returncode != 0
    assert "TypeCheckError" in result.stderr
