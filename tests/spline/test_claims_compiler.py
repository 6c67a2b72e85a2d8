"""Max-definable functions are encoders, autoregressive ones decoders (spl-05, spl-11 … spl-14)."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from fourviews import spline
from fourviews.attention import FeedForward
from fourviews.spline.compiler.schedule import Affine, Heads, Layer

from .cases import REAL, random_expression, random_matrix

MAX, MIN = spline.maximum, spline.minimum


def agrees(encoder, f, seed=0, points=3) -> None:
    """In rationals exactly, in float64 to rounding, and with dense weights of the attention module."""
    generator = random.Random(seed)
    rows = np.asarray(f, dtype=object)
    rows = rows.reshape(1, -1) if rows.ndim < 2 else rows
    s, d = encoder.tokens, encoder.d_model
    dense = encoder.dense().requires_grad_(False)
    for _ in range(points):
        x = random_matrix(generator, s, d)
        wanted = [
            [
                entry(x) if entry.shape else entry.constant
                for entry in map(spline.Expression.of, row)
            ]
            for row in (rows if len(rows) == s else list(rows) * s)
        ]
        assert encoder.exact(x) == wanted
        exact = torch.tensor([[float(v) for v in row] for row in wanted], dtype=REAL)
        tensor = torch.tensor([[float(v) for v in row] for row in x], dtype=REAL)
        scale = 1 + float(exact.abs().max())
        # Maxima of polynomials cancel: what is allowed is relative to the largest monomials.
        size = 3.0 ** max(encoder.report.degree, 1)
        assert float((encoder(tensor) - exact).abs().max()) <= 1e-12 * (scale + size)
        assert float((dense(tensor) - exact).abs().max()) <= 1e-12 * (scale + size)


# spl-05 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-05", verdict="verified")
@pytest.mark.parametrize("seed", range(12))
def test_spl_05_every_expression_is_a_maximum_of_minima(seed):
    generator = random.Random(seed)
    X = spline.variables(1, 2)
    f = random_expression(generator, X, 2) + X[0, 0]
    form = spline.normal_form(f)
    expression = form.expression()
    for _ in range(10):
        x = random_matrix(generator, 1, 2)
        assert form(x) == f(x) == expression(x)


@pytest.mark.claim("spl-05", verdict="verified")
def test_spl_05_the_two_identities():
    x, y = spline.variables(1, 2)[0]
    product = MAX(MIN(x * y, x * x * y + y), MIN(0, -x * x * y - y))
    positive = MAX(x * y, 0)
    generator = random.Random(0)
    for _ in range(300):
        a, b = (Fraction(generator.randint(-40, 40), 8) for _ in range(2))
        assert product([a, b]) == a * max(b, 0)
        assert positive([a, b]) == max(a * b, 0)
        assert spline.normal_form(positive)([a, b]) == max(a * b, 0)


@pytest.mark.mutation("spl-05")
def test_spl_05_a_sign_in_the_identity_is_noticed():
    x, y = spline.variables(1, 2)[0]
    wrong = MAX(MIN(x * y, x * x * y + y), MIN(0, x * x * y + y))
    assert any(wrong([a, b]) != a * max(b, 0) for a in (-3, 2) for b in (-1, 5))


@pytest.mark.claim("spl-05/tropical", verdict="verified")
def test_spl_05_without_products_it_is_the_max_plus_semiring():
    X = spline.variables(1, 3)[0]
    for seed in range(20):
        generator = random.Random(seed)
        a, b, c = (random_expression(generator, X[None], 1, products=False) for _ in range(3))
        x = random_matrix(generator, 1, 3)
        assert MAX(a, b)(x) == MAX(b, a)(x) and (a + MAX(b, c))(x) == MAX(a + b, a + c)(x)
        form = spline.normal_form(random_expression(generator, X[None], 3, products=False) + X[0])
        assert all(sum(e) <= 1 for inner in form.polynomials for p in inner for e in p.itermonoms())


# spl-09, spl-10 -----------------------------------------------------------------------------------


@pytest.mark.claim("spl-09", verdict="verified")
@pytest.mark.parametrize("n, k, other", [(1, 3, 2), (2, 2, 2), (2, 3, 2), (3, 2, 1), (2, 1, 4)])
def test_spl_09_composed_veronese_maps_hold_all_monomials(n, k, other):
    inner = spline.monomials(n, other)
    assert len(inner) == len(set(inner)) == math.comb(n + other, other)
    composed = {
        tuple(sum(e * inner[i][v] for i, e in enumerate(outer)) for v in range(n))
        for outer in spline.monomials(len(inner), k)
    }
    assert set(spline.monomials(n, k * other)) <= composed
    x = [Fraction(3, 2), Fraction(-2), Fraction(5)][:n]
    assert set(spline.veronese(x, k * other)) <= set(spline.veronese(spline.veronese(x, other), k))


@pytest.mark.mutation("spl-09")
def test_spl_09_one_degree_more_is_not_there():
    inner = spline.monomials(2, 2)
    composed = {
        tuple(sum(e * inner[i][v] for i, e in enumerate(outer)) for v in range(2))
        for outer in spline.monomials(len(inner), 2)
    }
    assert not set(spline.monomials(2, 5)) <= composed


@pytest.mark.claim("spl-10", verdict="verified")
@pytest.mark.parametrize("seed", range(6))
def test_spl_10_max_definable_is_linear_after_veronese_and_back(seed):
    generator = random.Random(seed)
    X = spline.variables(1, 2)
    f = random_expression(generator, X, 2) + X[0, 1] * X[0, 1]
    k, linear = spline.linear_after_veronese(f)
    assert linear.degree() == 1
    for _ in range(10):
        x = random_matrix(generator, 1, 2)
        assert linear(list(spline.veronese(np.array(x, dtype=object), k))) == f(x)
    # Back: a linear spline is a maximum of minima of affine functions (spl-06), so that after v_k
    # it is one of polynomials.
    back = random_expression(generator, spline.variables(1, 6), 2, products=False)
    monomials = list(spline.veronese(X, 2))
    composed = back.fold(lambda _, j: spline.Expression.of(monomials[j]), lambda v: MAX(*v))
    form = spline.normal_form(composed + X[0, 0])
    point = random_matrix(generator, 1, 2)
    wanted = back(list(spline.veronese(np.array(point, dtype=object), 2)))
    assert form(point) - point[0][0] == wanted


@pytest.mark.mutation("spl-10")
def test_spl_10_a_smaller_k_is_not_enough():
    x, y = spline.variables(1, 2)[0]
    assert spline.linear_after_veronese(MAX(x * x * y, 0))[0] == 3


# spl-11, spl-12 -----------------------------------------------------------------------------------


@pytest.mark.claim("spl-11", verdict="verified")
@pytest.mark.parametrize("s, d", [(2, 1), (2, 2), (3, 2), (4, 1)])
def test_spl_11_two_blocks_put_all_quadratic_monomials_into_every_token(s, d):
    encoder = spline.veronese_encoder(s, d)
    assert encoder.report.layers == 2
    assert encoder.d_out == math.comb(s * d + 2, 2)
    agrees(encoder, spline.veronese(spline.variables(s, d), 2))


@pytest.mark.claim("spl-11/one-token", verdict="verified")
@pytest.mark.parametrize("d", [1, 2, 5])
def test_spl_11_one_token_needs_one_block_only(d):
    encoder = spline.veronese_encoder(1, d)
    assert encoder.report.layers == 1
    agrees(encoder, spline.veronese(spline.variables(1, d), 2))


def one_block_for_two_tokens(d: int) -> spline.CompiledEncoder:
    """All quadratic monomials of two tokens with d features, in one block.

    Products come out in other heads at token 0 than at token 1. The network is the same for both,
    so a head that is N, the sum of all squares, at token 1 and 0 at token 0 makes it switch: N is
    larger than any monomial.
    """
    one = ({}, Fraction(1))
    heads = Heads()

    def signed(query, key, columns, **where):
        """relu(s)·v − relu(−s)·v = s·v, as combinations of registers: one dict a column."""
        values = [({b: Fraction(1)}, Fraction(0)) for b in columns]
        found = [{} for _ in columns]
        for sign in (1, -1):
            # One of the two is constant: the other one takes the sign.
            q, k = (({a: sign * v for a, v in row.items()}, c) for row, c in (query, key))
            for place, register in enumerate(heads.add(q, k, values, **where)):
                found[place][register] = Fraction(sign)
        return found

    of = lambda a: ({a: Fraction(1)}, Fraction(0))  # noqa: E731
    everything = range(d)
    given = [
        [{r: Fraction(1)} for r in heads.add(one, one, [of(b) for b in everything], token=j)]
        for j in (0, 1)
    ]
    # At token i: x_ia x_jb for j = 0, 1, then Σ_j x_ja x_jb, and Σ_j x_ja² at token 1 only.
    mixed = [[signed(of(a), one, everything, token=j) for a in everything] for j in (0, 1)]
    both = [signed(one, of(a), everything, token=None) for a in everything]
    last = [signed(one, of(a), [a], token=None, query_token=1)[0] for a in everything]

    def plus(*terms):
        out: dict[int, Fraction] = {}
        for factor, row in terms:
            for register, value in row.items():
                out[register] = out.get(register, Fraction(0)) + factor * value
        return out

    size = plus(*((1, both[a][a]) for a in everything))
    switch = plus(*((1, row) for row in last))

    def at_tokens(first, second):
        (i, a), (j, b) = first, second
        if (i, j) == (0, 0):
            return mixed[0][a][b], plus((1, both[a][b]), (-1, mixed[1][a][b]))
        if (i, j) == (1, 1):
            return plus((1, both[a][b]), (-1, mixed[0][a][b])), mixed[1][a][b]
        return mixed[1][a][b], mixed[0][b][a]

    hidden, output = Affine(), Affine()
    whole = hidden.add(size)
    names = [(i, a) for i in (0, 1) for a in everything]
    for exponents in spline.monomials(2 * d, 2):
        chosen = [name for name, e in zip(names, exponents, strict=True) for _ in range(e)]
        if not chosen:
            output.add({}, Fraction(1))
        elif len(chosen) == 1:
            ((i, a),) = chosen
            up, down = (hidden.add(plus((sign, given[i][a]))) for sign in (1, -1))
            output.add({up: Fraction(1), down: Fraction(-1)})
        else:
            z0, z1 = at_tokens(*chosen)
            here = hidden.add(plus((1, z0), (2, size), (-4, switch)))
            there = hidden.add(plus((1, z1), (-2, size), (4, switch)))
            output.add({here: Fraction(1), there: Fraction(1), whole: Fraction(-2)})
    return spline.CompiledEncoder([Layer(heads, hidden, output)], 2, d)


@pytest.mark.claim("spl-11/two-tokens", verdict="verified")
@pytest.mark.parametrize("d", [1, 2, 3])
def test_spl_11_two_tokens_need_one_block_only(d):
    encoder = one_block_for_two_tokens(d)
    assert encoder.report.layers == 1
    generator = random.Random(d)
    for power in (-3, 0, 3, 0, 0):
        x = [
            [
                generator.choice([0, 1, -1])
                * Fraction(generator.randint(1, 99), 8)
                * Fraction(10) ** power
            ]
            + [Fraction(generator.randint(-99, 99), 8) for _ in range(d - 1)]
            for _ in range(2)
        ]
        wanted = list(spline.veronese(x, 2))
        assert encoder.exact(x) == [wanted, wanted]
    points = torch.randn(20, 2, d, dtype=REAL)
    with torch.no_grad():
        assert torch.allclose(encoder(points), encoder.dense()(points), atol=1e-13)


@pytest.mark.mutation("spl-11")
def test_spl_11_one_attention_cannot_join_two_other_tokens():
    """A mixed difference in two tokens vanishes at a third, on every piece, for any weights."""
    from .cases import relu_attention

    torch.manual_seed(0)
    attention = relu_attention(1, heads=3)
    x = torch.randn(3, 1, dtype=REAL)

    def at(a, b):
        y = x.clone()
        y[1, 0] += a
        y[2, 0] += b
        return attention(y)[0]

    mixed = at(1.0, 1.0) - at(1.0, 0.0) - at(0.0, 1.0) + at(0.0, 0.0)
    assert float(mixed.detach().abs().max()) < 1e-12
    two = spline.veronese_encoder(3, 1)
    y = torch.zeros(4, 3, 1, dtype=REAL)
    y[[1, 3], 1] = y[[2, 3], 2] = 1.0
    out = two(y)[:, 0]
    assert float((out[3] - out[1] - out[2] + out[0]).abs().max()) == 1.0


@pytest.mark.claim("spl-12", verdict="verified")
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_spl_12_a_one_layer_network_is_a_block(tokens):
    torch.manual_seed(tokens)
    network = FeedForward(3, 7, 4, dtype=REAL)
    block = spline.network_block(network, tokens)
    x = torch.randn(6, tokens, 3, dtype=REAL) * 100
    assert torch.equal(block(x), network(x))
    assert block.attention.activation == "relu"


@pytest.mark.mutation("spl-12")
def test_spl_12_without_offsets_it_fails():
    network = FeedForward(3, 7, 4, dtype=REAL)
    block = spline.network_block(network, 2)
    with torch.no_grad():
        block.attention.offset_q.zero_()
    x = torch.randn(2, 3, dtype=REAL)
    assert not torch.allclose(block(x), network(x))


# spl-13 -------------------------------------------------------------------------------------------


@pytest.mark.claim("spl-13", verdict="verified")
@pytest.mark.parametrize("s, d", [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_spl_13_expressions_compile_to_encoders(s, d, seed):
    generator = random.Random(seed)
    X = spline.variables(s, d)
    matrix = np.empty((s, 2), dtype=object)
    for index in np.ndindex(matrix.shape):
        matrix[index] = random_expression(generator, X, 3) + X[0, 0]
    agrees(spline.compile_encoder(matrix), matrix, seed)
    scalar = matrix[0, 0]
    agrees(spline.compile_encoder(scalar), scalar, seed)


def polynomials_of(x, degree, q):
    """max_i min_j of q·q polynomials of a given degree."""
    return MAX(
        *(
            MIN(*((-1) ** i * x**degree + (i * q + j + 1) * x - i * j for j in range(q)))
            for i in range(q)
        )
    )


@pytest.mark.claim("spl-13/count", verdict="verified")
@pytest.mark.parametrize("degree", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("q", [1, 2, 5, 16])
def test_spl_13_the_number_of_blocks_is_logarithmic(degree, q):
    x = spline.variables(1, 1)[0, 0]
    report = spline.compile_encoder(polynomials_of(x, degree, q)).report
    three = math.ceil(math.log(degree, 3) - 1e-12)
    # Half-steps: 2⌈log₃ k⌉ − 1 for powers, two rounds of ⌈log₂ q⌉ for minima and maxima.
    assert report.layers <= max(1, three + math.ceil(math.log2(q)))
    assert report.layers <= max(1, math.ceil(math.log2(degree)) + math.ceil(math.log2(q)))


@pytest.mark.claim("spl-13/count", verdict="verified")
def test_spl_13_the_count_holds_for_64_terms_a_level_and_for_several_tokens():
    x = spline.variables(1, 1)[0, 0]
    assert spline.compile_encoder(polynomials_of(x, 8, 64)).report.layers <= 3 + 6
    X = spline.variables(2, 1)
    f = polynomials_of(X[0, 0] * X[1, 0], 2, 8)
    # One block gathers the tokens; another one hands each its own results, if they differ.
    assert spline.compile_encoder(f).report.layers <= 1 + 2 + 3
    assert spline.compile_encoder(np.array([[f], [X[1, 0]]])).report.layers <= 1 + 2 + 3 + 1


@pytest.mark.claim("spl-13/needed", verdict="corrected")
@pytest.mark.parametrize("seed", range(4))
def test_spl_13_networks_are_not_needed(seed):
    """Heads alone compute every max-definable function: hidden neurons only hand numbers on."""
    generator = random.Random(seed)
    X = spline.variables(2, 2)
    f = random_expression(generator, X, 3) + X[1, 1]
    encoder = spline.compile_encoder(f, networks=False)
    agrees(encoder, f, seed)
    assert encoder.report.layers <= 2 * spline.compile_encoder(f).report.layers
    seen = []
    dense = encoder.dense()
    for block in dense:
        block.feed_forward.hidden.register_forward_hook(lambda *args: seen.append(args[-1]))
    torch.manual_seed(seed)
    with torch.no_grad():
        dense(torch.randn(200, 2, 2, dtype=REAL))
    for hidden in seen:
        for neuron in hidden.unbind(-1):
            mirrored = any(torch.equal(neuron, -other) for other in hidden.unbind(-1))
            assert mirrored or float(neuron.min()) >= -1e-9


def side_by_side(attention, x: torch.Tensor) -> torch.Tensor:
    """σ(QKᵀ)V of every head, concatenated and not added up: the modules of the source."""
    q, k, v = (
        x[:, None] @ getattr(attention, f"weight_{name}") + getattr(attention, f"offset_{name}")
        for name in "qkv"
    )
    return (torch.relu(q @ k.mT) @ v).transpose(1, 2).flatten(2)


@pytest.mark.claim("spl-13/needed", verdict="corrected")
def test_spl_13_without_networks_it_takes_one_more_attention():
    """What is left of the networks is affine, and so are queries, keys and values after them.

    The maps are found from points; attentions with these maps for input, and one more that hands
    on, are the function at other points.
    """
    x, y = spline.variables(1, 2)[0]
    f = MAX(x * y - 1, x - y * y, 0) * x - MAX(x * x - y, 0) * y
    blocks = spline.compile_encoder(f, networks=False).dense()

    def samples(seed: int, scale: float) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return scale * torch.randn(400, 1, 2, generator=generator, dtype=REAL)

    attentions, heads = [], samples(0, 3.0)
    with torch.no_grad():
        for block in blocks:
            out = side_by_side(block.attention, heads)
            ones = torch.cat([out, torch.ones_like(out[..., :1])], -1)[:, 0]
            heads = block(heads)
            found = torch.linalg.lstsq(ones, heads[:, 0], driver="gelsd").solution
            attentions.append((block.attention, found))
        at = samples(1, 2.0)
        wanted = torch.tensor(
            [float(f([list(map(Fraction, p))])) for p in at[:, 0].tolist()], dtype=REAL
        )
        z = at
        for attention, affine in attentions:
            last = side_by_side(attention, z)
            # What the next queries, keys and values take up; at the end, the value of one more
            # attention that hands on.
            z = last @ affine[:-1] + affine[-1]
    size = float(wanted.abs().max())
    assert float((z[:, 0, 0] - wanted).abs().max()) < 1e-12 * size
    # The heads of the last attention are not yet the function: it does take one more here.
    assert float((last[:, 0] - wanted[:, None]).abs().amax(0).min()) > 1e-2 * size


@pytest.mark.claim("spl-13/needed", verdict="corrected")
def test_spl_13_layers_and_offsets_are_needed():
    # One block has degree 3 at most, so x⁴ needs another.
    x = spline.variables(1, 1)[0, 0]
    assert spline.compile_encoder(x**3).report.layers == 1
    assert spline.compile_encoder(x**4).report.layers == 2
    # Without offsets an attention is positively homogeneous of degree 3: no constant, no square.
    from .cases import relu_attention

    attention = relu_attention(2, heads=2)
    with torch.no_grad():
        for name in ("bias_q", "bias_k", "bias_v", "bias_o"):
            getattr(attention, name).zero_()
    X = torch.randn(3, 2, dtype=REAL)
    assert torch.allclose(attention(2 * X), 8 * attention(X))


@pytest.mark.mutation("spl-13")
def test_spl_13_a_changed_weight_is_noticed():
    x, y = spline.variables(1, 2)[0]
    f = MAX(x * y, x - y)
    encoder = spline.compile_encoder(f)
    encoder.layers[0].heads.query.constants[0] += Fraction(1, 100)
    points = [random_matrix(random.Random(i), 1, 2) for i in range(20)]
    assert any(encoder.exact(p) != [[f(p)]] for p in points)


# spl-14 -------------------------------------------------------------------------------------------


def autoregressive(generator, s, d, r=2):
    X = spline.variables(s, d)
    matrix = np.empty((s, r), dtype=object)
    for c, k in np.ndindex(s, r):
        matrix[c, k] = random_expression(generator, X[: c + 1], 2) + X[c, 0]
    return matrix


@pytest.mark.claim("spl-14", verdict="verified")
@pytest.mark.parametrize("s, d", [(1, 2), (2, 1), (3, 2), (4, 1)])
@pytest.mark.parametrize("seed", range(2))
def test_spl_14_autoregressive_expressions_compile_to_decoders(s, d, seed):
    f = autoregressive(random.Random(seed), s, d)
    decoder = spline.compile_decoder(f)
    assert decoder.causal
    agrees(decoder, f, seed)


@pytest.mark.claim("spl-14", verdict="verified")
def test_spl_14_the_mask_alone_makes_it_causal():
    """Later tokens change nothing, not even with other weights in all maps."""
    f = autoregressive(random.Random(5), 4, 2)
    decoder = spline.compile_decoder(f).dense()
    torch.manual_seed(0)
    x = torch.randn(4, 2, dtype=REAL)
    for noise in (0.0, 0.3):
        with torch.no_grad():
            for parameter in decoder.parameters():
                parameter += noise * torch.randn_like(parameter) / 10
        before = decoder(x)
        for token in range(1, 4):
            changed = x.clone()
            changed[token:] += torch.randn(4 - token, 2, dtype=REAL)
            assert torch.equal(decoder(changed)[:token], before[:token])


@pytest.mark.mutation("spl-14")
def test_spl_14_an_encoder_of_the_same_function_is_not_causal_by_its_mask():
    X = spline.variables(2, 1)
    f = np.array([[X[0, 0] + X[1, 0]], [X[1, 0] * X[0, 0]]])
    with pytest.raises(ValueError, match="output 0 of token 0 depends on token 1"):
        spline.compile_decoder(f)
    x = torch.tensor([[1.0], [2.0]], dtype=REAL)
    encoder = spline.compile_encoder(f)
    assert encoder(x)[0] != encoder(x + torch.tensor([[0.0], [1.0]], dtype=REAL))[0]


def test_a_recurrence_is_a_decoder():
    # x_{i+1} = 4 x_i (1 − x_i), unrolled from the first token: degree 2, 4, 8.
    X = spline.variables(4, 1)
    state, rows = X[0, 0], []
    for i in range(4):
        rows.append([state + X[i, 0] - X[i, 0]])
        state = 4 * state * (1 - state)
    decoder = spline.compile_decoder(np.array(rows, dtype=object))
    out = decoder.exact([[Fraction(1, 3)], [7], [8], [9]])
    value = Fraction(1, 3)
    for row in out:
        assert row == [value]
        value = 4 * value * (1 - value)


# --- expressions ----------------------------------------------------------------------------------


def test_what_is_not_max_definable_is_refused():
    x, y = spline.variables(1, 2)[0]
    for wrong in (
        lambda: 1 / x,
        lambda: x / y,
        lambda: x**0.5,
        lambda: x**-1,
        lambda: 2**x,
        lambda: x < y,
        lambda: 1 if x else 0,
        lambda: x * float("nan"),
        lambda: x + 1j,
        lambda: x / 0,
        lambda: MAX(),
        lambda: MAX(x, "1"),
        lambda: spline.variables(0, 1),
        lambda: x + spline.variables(2, 1)[0, 0],
        lambda: spline.compile_encoder(np.array([x, None])),
        lambda: spline.compile_encoder(np.array([[x], [y]])),
        lambda: spline.compile_encoder(spline.Expression.of(3)),
        lambda: spline.Expression(),
    ):
        with pytest.raises((ValueError, ZeroDivisionError)):
            wrong()
    with pytest.raises(ValueError, match=r"entry \(1,\) of f is not max-definable"):
        spline.compile_encoder(np.array([x, "y"], dtype=object))


def test_equal_subexpressions_are_one_object_and_computed_once():
    x, y = spline.variables(1, 2)[0]
    assert MAX(x * y, 0) is MAX(0, y * x)
    assert (x + y) * (x + y) is (y + x) ** 2
    f = MAX(x * y, 1)
    once, twice = (spline.compile_encoder(g).report for g in (f, f * 3 + f))
    assert once.parameters == twice.parameters


def test_expressions_evaluate_in_torch_and_in_rationals():
    X = spline.variables(2, 2)
    f = abs(X[0, 0] * X[1, 1] - 2) + MIN(X[0, 1], Fraction(1, 3)) / 4
    x = [[Fraction(3, 2), 1], [0, -2]]
    assert f(x) == 5 + Fraction(1, 12)
    tensor = torch.tensor([[1.5, 1.0], [0.0, -2.0]], dtype=REAL)
    assert float(f(tensor)) == pytest.approx(float(f(x)))
    assert f(tensor.expand(3, 4, 2, 2)).shape == (3, 4)
    with pytest.raises(ValueError, match="shape"):
        f(tensor[:1])
