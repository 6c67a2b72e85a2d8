"""The projection itself: accuracy in every precision, derivatives, transformations, bad input."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourviews import projection

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INF = math.inf


def bound(dtype: torch.dtype, n: int) -> float:
    """What |Σ y - k| may be: each y is rounded, and the sums of the iteration are."""
    return 2 * torch.finfo(dtype).eps * n


def exact(x: list[float], k: int) -> list[mpmath.mpf]:
    """y in 200 digits, by bisection on ν: slow, and independent of the method."""
    with mpmath.workdps(200):
        logits = [mpmath.mpf(v) for v in x]
        low, high = -max(logits) - 300, -min(logits) + 300
        for _ in range(int(mpmath.log((high - low) * mpmath.mpf(10) ** 190, 2))):
            middle = (low + high) / 2
            if mpmath.fsum(1 / (1 + mpmath.exp(-v - middle)) for v in logits) < k:
                low = middle
            else:
                high = middle
        return [1 / (1 + mpmath.exp(-v - low)) for v in logits]


# --- forward -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 30.0, 1e4, 1e30])
@pytest.mark.parametrize("n, k", [(1, 0), (1, 1), (2, 1), (7, 3), (50, 1), (50, 49), (50, 50)])
def test_sum_is_k_in_every_precision(n: int, k: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(n + k)
    for dtype in DTYPES:
        if scale > torch.finfo(dtype).max / 100:
            continue
        x = (torch.randn(20, n, generator=generator, dtype=torch.float64) * scale).to(dtype)
        y, info = projection.lml(x, k, return_info=True)
        assert y.dtype == dtype
        assert bool((y.double().sum(-1) - k).abs().le(bound(dtype, n)).all())
        assert bool((info.residual == y.double().sum(-1) - k).all())
        assert info.evaluations <= 8


@pytest.mark.parametrize("n, k", [(1000, 5), (1000, 333), (1000, 999), (20000, 5)])
def test_sum_is_k_with_many_entries(n: int, k: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype in DTYPES:
        for scale in (0.0, 1.0, 100.0):
            x = (torch.randn(17, n, generator=generator) * scale).to(dtype)
            y = projection.lml(x, k)
            assert bool((y.double().sum(-1) - k).abs().le(bound(dtype, n)).all())


@pytest.mark.parametrize(
    "x, k",
    [
        ([0.3, -1.2, 2.0, 0.3, 0.3], 2),
        ([50.0, -50.0, 3.0], 1),
        ([40.0, 39.0, -40.0, -41.0, -42.0], 2),
        ([300.0, 0.0, -5.0], 1),
        ([1e15, 1e15 + 1, 1e15 + 3], 1),
        ([5.0] * 9 + [-30.0] * 3, 9),
        ([0.0] * 30, 7),
    ],
)
def test_small_probabilities_have_their_digits(x: list[float], k: int) -> None:
    """σ(z) and σ(-z) to a relative error of rounding, where y itself is 1 in float64."""
    z = projection.lml_logits(torch.tensor(x, dtype=torch.float64), k)
    for ours, y in zip(z.tolist(), exact(x, k), strict=True):
        with mpmath.workdps(200):
            wanted = mpmath.log(y) - mpmath.log1p(-y)
            assert abs(ours - wanted) <= 8 * 2.0**-52 * (1 + abs(wanted))


def mixed_logits() -> st.SearchStrategy[tuple[torch.Tensor, int]]:
    """A row of any precision with ties, infinities, tiny and huge entries, and a feasible k."""

    @st.composite
    def rows(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
        dtype = draw(st.sampled_from(DTYPES))
        width = {torch.float64: 64, torch.float32: 32, torch.float16: 16}.get(dtype, 32)
        number = st.floats(width=width, allow_nan=False)
        few = st.sampled_from([0.0, 1.0, -1.0, 8.0, 1e4, -1e4, INF, -INF])
        x = draw(st.lists(number | few, min_size=1, max_size=12))
        row = torch.tensor(x, dtype=torch.float64).to(dtype)
        low, high = int((row == INF).sum()), int((row > -INF).sum())
        return row, draw(st.integers(low, high))

    return rows()


@given(mixed_logits())
def test_any_feasible_row(case: tuple[torch.Tensor, int]) -> None:
    row, k = case
    row = row.requires_grad_()
    answer = projection.lml(row, k)
    y, n = answer.detach(), len(row)
    assert bool(((y >= 0) & (y <= 1)).all())
    assert abs(float(y.double().sum()) - k) <= bound(row.dtype, n)
    if bool((row == INF).any()):
        assert bool((y[row == INF] == 1).all())
    assert bool((y[row == -INF] == 0).all())
    # Order, and equal values for ties: to one rounding of the logistic function.
    by_x, by_y = row.detach().double(), y.double()
    order = by_x.argsort()
    rise = by_y[order].diff()
    slack = 2 * torch.finfo(row.dtype).eps
    assert bool((rise >= -slack * by_y[order][1:]).all())
    tied = by_x[order].diff() == 0
    assert bool((rise[tied].abs() <= slack * by_y[order][1:][tied]).all())
    (gradient,) = torch.autograd.grad((answer * torch.arange(n)).sum(), row)
    assert bool(gradient.isfinite().all())
    # The gradient of a sum that stays k is zero.
    assert abs(float(gradient.double().sum())) <= n**2 * bound(row.dtype, n)


@given(mixed_logits(), st.integers(0, 2**30))
def test_any_row_and_any_k_is_answered_or_refused(case, seed: int) -> None:
    row, _ = case
    k = seed % (len(row) + 1)
    feasible = int((row == INF).sum()) <= k <= int((row > -INF).sum())
    quiet = projection.lml(row, k, infeasible="nan")
    if feasible:
        assert torch.equal(quiet, projection.lml(row, k))
    else:
        assert bool(quiet.isnan().all())
        with pytest.raises(ValueError, match="entries"):
            projection.lml(row, k)


def test_limits_are_as_documented() -> None:
    x = torch.tensor([[INF, 3.0, 2.0, -INF], [0.0, -INF, 1.0, -INF]])
    y = projection.lml(x, 2)
    half = 1 / (1 + math.exp(-0.5))
    assert y[0].tolist() == pytest.approx([1.0, half, 1 - half, 0.0])
    assert y[1].tolist() == [1.0, 0.0, 1.0, 0.0]
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    assert torch.equal(projection.lml(z, 0), torch.zeros(5, 4))
    assert torch.equal(projection.lml(z, 4), torch.ones(5, 4))
    z.requires_grad_()
    for k in (0, 4):
        (gradient,) = torch.autograd.grad(projection.lml(z, k)[:, 0].sum(), z)
        assert torch.equal(gradient, torch.zeros(5, 4))
    # k tends to 0 or n in no other way: the same through the logits of a single entry.
    huge = torch.finfo(torch.float32).max
    assert projection.lml(torch.tensor([huge, INF, -huge]), 1).tolist() == [0, 1, 0]
    assert projection.lml(torch.tensor([huge, -huge, 0.0]), 1).tolist() == [1, 0, 0]


def test_masked_entries_do_not_exist() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    mask = torch.rand(30, 6, generator=generator) < 0.6
    mask[:, :2] = True
    noisy = torch.where(mask, x, torch.nan).requires_grad_()
    y = projection.lml(noisy, 2, mask=mask)
    g = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(y, noisy, g)
    for i in range(30):
        row = x[i, mask[i]].clone().requires_grad_()
        alone = projection.lml(row, 2)
        (wanted,) = torch.autograd.grad(alone, row, g[i, mask[i]])
        assert torch.allclose(y[i, mask[i]], alone, rtol=1e-14, atol=0)
        assert torch.allclose(gradient[i, mask[i]], wanted, rtol=1e-12, atol=1e-15)
    assert bool((y[~mask] == 0).all()) and bool((gradient[~mask] == 0).all())


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -2])
def test_any_axis_and_k_of_each_row(dim: int) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 4, 5, 6, generator=generator, dtype=torch.float64)
    n = x.shape[dim]
    rows = x.movedim(dim, -1).shape[:-1]
    ks = torch.randint(0, n + 1, rows, generator=generator)
    y, info = projection.lml(x, ks, dim, return_info=True)
    assert y.shape == x.shape and info.shift.shape == rows
    assert bool((y.sum(dim) - ks).abs().le(bound(x.dtype, n)).all())
    for k in range(n + 1):
        same = projection.lml(x, k, dim).movedim(dim, -1)
        assert torch.allclose(y.movedim(dim, -1)[ks == k], same[ks == k], rtol=1e-14, atol=0)
    inner = (ks > 0) & (ks < n)
    again = torch.sigmoid(x.movedim(dim, -1) + info.shift[..., None])
    assert torch.allclose(again[inner], y.movedim(dim, -1)[inner], rtol=1e-12, atol=1e-14)


def test_blocks_of_rows_agree_with_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.modules["fourviews.projection.lml"], "_BLOCK", 40)
    x = torch.randn(23, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y = projection.lml(x, 4)
    ks = torch.arange(23) % 11
    several = projection.lml(x, ks)
    for i in range(23):
        assert torch.allclose(projection.lml(x[i], 4), y[i], rtol=1e-14, atol=0)
        assert torch.allclose(projection.lml(x[i], int(ks[i])), several[i], rtol=1e-14, atol=0)
    x[17, 3] = torch.nan
    with pytest.raises(ValueError, match=r"row \(17,\) of x has NaN"):
        projection.lml(x, 4)


def test_no_rows_is_no_error() -> None:
    x = torch.randn(0, 5, requires_grad=True)
    projection.lml(x, 2).sum().backward()
    assert x.grad.shape == (0, 5)
    assert projection.lml(torch.randn(3, 0, 5), torch.zeros(3, 0, dtype=torch.long)).numel() == 0


# --- derivatives -------------------------------------------------------------------------


def differentiable_cases() -> list[tuple[torch.Tensor, object, int, torch.Tensor | None]]:
    generator = torch.Generator().manual_seed(0)
    cases = []
    for shape, dim in (((4,), 0), ((2, 5), 1), ((3, 2, 3), 1), ((2, 1), 1), ((6, 2), 0)):
        n = shape[dim]
        rows = torch.empty(shape).movedim(dim, -1).shape[:-1]
        for trial in range(3):
            x = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
            if trial == 1:
                x = x.round()  # ties, also at the cut
            mask = None
            k: object = int(torch.randint(0, n + 1, (), generator=generator))
            if trial == 2:
                mask = torch.rand(shape, generator=generator) < 0.7
                free = mask.sum(dim)
                k = (torch.rand(rows, generator=generator) * (free + 1)).long().minimum(free)
            cases.append((x.requires_grad_(), k, dim, mask))
    return cases


@pytest.mark.parametrize("x, k, dim, mask", differentiable_cases())
def test_gradcheck_and_gradgradcheck(x, k, dim, mask) -> None:
    def function(x):
        return projection.lml(x, k, dim, mask=mask)

    assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, (x,), check_batched_grad=True)
    if mask is None and isinstance(k, int) and 0 < k < x.shape[dim]:

        def logits(x):
            return projection.lml_logits(x, k, dim)

        assert torch.autograd.gradcheck(logits, (x,), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(logits, (x,))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_gradients_of_any_shape_k_mask_and_ties(draw: st.DataObject) -> None:
    shape = draw.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = draw.draw(st.integers(-len(shape), len(shape) - 1))
    size = math.prod(shape)
    number = st.floats(-6, 6) | st.sampled_from([0.0, 1.0, -1.0])
    x = draw.draw(st.lists(number, min_size=size, max_size=size))
    x = torch.tensor(x, dtype=torch.float64).reshape(shape).requires_grad_()
    mask = draw.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    mask = torch.tensor(mask).reshape(shape)
    free = mask.sum(dim)
    rows = free.numel()
    lottery = draw.draw(st.lists(st.integers(0, 100), min_size=rows, max_size=rows))
    k = torch.tensor(lottery).reshape(free.shape) % (free + 1)

    def function(x: torch.Tensor) -> torch.Tensor:
        return projection.lml(x, k, dim, mask=mask)

    assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x,))


def test_third_derivative() -> None:
    x = torch.tensor([0.3, -0.5, 1.0], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def second(x):
        value = (projection.lml(x, 1) * weights).sum()
        (g,) = torch.autograd.grad(value, x, create_graph=True)
        (h,) = torch.autograd.grad((g * g).sum(), x, create_graph=True)
        return h

    assert torch.autograd.gradcheck(second, (x,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [1.0, 60.0, 200.0, 1e4, 3e4])
def test_saturated_gradients_are_finite_and_right(gap: float, dtype: torch.dtype) -> None:
    """Two against two: y = σ(±gap/2) up to exponentially small terms, and so are the weights."""
    x = torch.tensor([gap, gap, 0.0, 0.0], dtype=dtype, requires_grad=True)
    y = projection.lml(x, 2)
    g = torch.tensor([1.0, 0.0, 0.0, 2.0], dtype=dtype)
    (gradient,) = torch.autograd.grad(y, x, g, create_graph=True)
    w = 1 / (2 + 2 * math.cosh(gap / 2)) if gap < 1400 else 0.0
    wanted = [w * (v - 0.75) for v in g.tolist()]
    tiny = float(torch.finfo(dtype).tiny)
    assert gradient.tolist() == pytest.approx(wanted, rel=8 * torch.finfo(dtype).eps, abs=4 * tiny)
    (second,) = torch.autograd.grad(gradient.sum() + gradient[0], x)
    assert bool(second.isfinite().all())
    assert x.dtype == gradient.dtype


def test_gradient_needs_no_graph_to_be_the_same() -> None:
    """The short cut of the plain backward pass agrees with the differentiable one."""
    generator = torch.Generator().manual_seed(5)
    for scale in (0.1, 1.0, 10.0, 100.0, 1e5):
        x = scale * torch.randn(40, 9, generator=generator, dtype=torch.float64)
        x.requires_grad_()
        g = torch.randn(40, 9, generator=generator, dtype=torch.float64)
        (plain,) = torch.autograd.grad(projection.lml(x, 4), x, g)
        (graph,) = torch.autograd.grad(projection.lml(x, 4), x, g, create_graph=True)
        assert torch.allclose(plain, graph.detach(), rtol=1e-12, atol=1e-300)


def test_infeasible_rows_leave_the_others_alone() -> None:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    clean = x.clone().requires_grad_()
    x[1, 2] = torch.nan
    x[3] = -INF
    x.requires_grad_()
    y = projection.lml(x, 2, infeasible="nan")
    rows = torch.tensor([0, 2])
    # To rounding: the slowest row of a batch decides how many steps all of them take.
    assert torch.allclose(y[rows], projection.lml(clean, 2)[rows], rtol=1e-13, atol=0)
    assert bool(y[[1, 3]].isnan().all())
    for function in (projection.lml, projection.lml_logits):
        out = function(x, 2, infeasible="nan")
        (gradient,) = torch.autograd.grad(out.square()[rows].sum(), x)
        (wanted,) = torch.autograd.grad(function(clean, 2).square()[rows].sum(), clean)
        assert torch.allclose(gradient, wanted, rtol=1e-11, atol=1e-14)
        assert bool((gradient[[1, 3]] == 0).all())


# --- transformations ---------------------------------------------------------------------


def test_vmap_over_any_axis_and_over_k() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
    ks = torch.tensor([0, 1, 2, 3, 4])
    wanted = torch.stack([projection.lml(x[:, i], int(ks[i])) for i in range(5)], 1)
    got = torch.vmap(projection.lml, in_dims=(1, 0), out_dims=1)(x, ks)
    assert torch.allclose(got, wanted, rtol=1e-14, atol=0)
    one = torch.vmap(lambda k: projection.lml(x[0, 0], k))(ks)
    assert torch.allclose(one.sum(-1), ks.double())
    nested = torch.vmap(torch.vmap(lambda r: projection.lml(r, 2)))(x)
    assert torch.allclose(nested, projection.lml(x, 2), rtol=1e-14, atol=0)
    with pytest.raises(ValueError, match="NaN"):
        torch.vmap(lambda r: projection.lml(r, 2))(torch.full((3, 4), torch.nan))
    with pytest.raises(ValueError, match="runs from 0 to 5"):
        torch.vmap(projection.lml)(x[0], torch.tensor([0, 1, 2, 3, 5]))


def test_jacobians_agree() -> None:
    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def function(x):
        return projection.lml(x, 2)

    reverse = torch.func.jacrev(function)(x)
    assert torch.allclose(reverse, torch.func.jacfwd(function)(x), rtol=1e-12, atol=1e-15)
    wanted = torch.autograd.functional.jacobian(function, x)
    assert torch.allclose(reverse, wanted, rtol=1e-12, atol=1e-15)
    w = function(x) * (1 - function(x))
    closed = torch.diag(w) - torch.outer(w, w) / w.sum()
    assert torch.allclose(reverse, closed, rtol=1e-12, atol=1e-15)
    batch = torch.stack([x, -x])
    assert torch.allclose(torch.vmap(torch.func.jacrev(function))(batch)[0], reverse)
    hessian = torch.func.hessian(lambda x: function(x)[0])(x)
    again = torch.func.jacrev(torch.func.jacrev(lambda x: function(x)[0]))(x)
    assert torch.allclose(hessian, again, rtol=1e-11, atol=1e-14)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("infeasible", ["raise", "nan"])
def test_compile_takes_it_in_one_graph(infeasible: str) -> None:
    def function(x):
        return projection.lml(x.sin(), 3, infeasible=infeasible).square()

    # The inner compiler is left out: it needs half a minute, and sees one opaque operator.
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(6), requires_grad=True)
    y = compiled(x)
    assert torch.allclose(y, function(x))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    (wanted,) = torch.autograd.grad(function(x).sum(), x)
    assert torch.allclose(gradient, wanted, rtol=1e-5, atol=1e-7)
    if infeasible == "raise":
        with pytest.raises(ValueError, match="NaN"):
            compiled(torch.full((4, 7), torch.nan, requires_grad=True))


@pytest.mark.filterwarnings("ignore")
def test_operator_keeps_its_contract() -> None:
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(3))
    tests = ("test_schema", "test_faketensor")
    for dtype in (torch.float32, torch.float16):
        torch.library.opcheck(
            torch.ops.fourviews.lml, (x.to(dtype), 2, None, True), test_utils=tests
        )
        ks = torch.tensor([1, 2, 3])
        torch.library.opcheck(
            torch.ops.fourviews.lml, (x.to(dtype), -1, ks, False), test_utils=tests
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_agrees_with_the_cpu(dtype: torch.dtype) -> None:
    x = torch.randn(64, 1000, generator=torch.Generator().manual_seed(7)).to(dtype)
    y = projection.lml(x.cuda(), 5)
    eps = torch.finfo(dtype).eps
    assert torch.allclose(y.cpu().double(), projection.lml(x, 5).double(), rtol=32 * eps, atol=eps)
    assert bool((y.double().sum(-1) - 5).abs().le(bound(dtype, 1000)).all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_derivatives_and_vmap_agree_with_the_cpu() -> None:
    x = torch.randn(8, 40, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    g = torch.randn(8, 40, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    ks = torch.arange(8) + 1
    found = []
    for device in ("cpu", "cuda"):
        point = x.to(device).requires_grad_()
        y = projection.lml(point, ks.to(device))
        (first,) = torch.autograd.grad(y, point, g.to(device), create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), point)
        rows = torch.vmap(lambda r: projection.lml(r, 3))(x.to(device))
        found.append([a.detach().cpu() for a in (y, first, second, rows)])
    for ours, wanted in zip(*found, strict=True):
        assert torch.allclose(ours, wanted, rtol=1e-10, atol=1e-13)
    assert float(projection.lml_loss(x.cuda(), ks.cuda(), 5).cpu()) == pytest.approx(
        float(projection.lml_loss(x, ks, 5)), rel=1e-10
    )


# --- module and bad input ----------------------------------------------------------------


def test_module_is_the_function() -> None:
    layer = projection.LML(3, dim=0)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(9))
    mask = torch.ones(5, 2, dtype=torch.bool)
    assert torch.equal(layer(x), projection.lml(x, 3, 0))
    assert torch.equal(layer(x, mask=mask), projection.lml(x, 3, 0))
    assert "k=3, dim=0" in str(layer)
    for k, message in ((-1, "k is -1"), (2.5, "k is 2.5"), (torch.tensor(2), "k is a tensor")):
        with pytest.raises(ValueError, match=message):
            projection.LML(k)
    with pytest.raises(ValueError, match="n = 5"):
        projection.LML(6, dim=0)(x)


@pytest.mark.parametrize(
    "x, k, options, message",
    [
        (torch.zeros(3), 4, {}, "k is 4; it needs to lie between 0 and n = 3"),
        (torch.zeros(3), -1, {}, "k is -1"),
        (torch.zeros(3), 1.5, {}, "k is 1.5; it needs to be an integer"),
        (torch.zeros(3), 2.0, {}, "k is 2.0; it needs to be an integer"),
        (torch.zeros(3), True, {}, "k is True; it needs to be an integer"),
        (torch.zeros(3), None, {}, "k is None"),
        (torch.zeros(2, 3), torch.tensor([1, 4]), {}, "k runs from 1 to 4"),
        (torch.zeros(2, 3), torch.tensor([1, -1]), {}, "k runs from -1 to 1"),
        (torch.zeros(2, 3), torch.tensor([1.0, 2.0]), {}, "k has dtype torch.float32"),
        (torch.zeros(2, 3), torch.tensor([True, False]), {}, "k has dtype torch.bool"),
        (torch.zeros(2, 3), torch.tensor([1, 2, 1]), {}, r"k has shape \(3,\)"),
        (torch.zeros(3, dtype=torch.int64), 1, {}, "x has dtype torch.int64"),
        (torch.zeros(3, dtype=torch.complex64), 1, {}, "x has dtype torch.complex64"),
        ([0.0, 1.0], 1, {}, "x is a list"),
        (torch.tensor(1.0), 1, {}, "x has no axes"),
        (torch.zeros(2, 0), 0, {}, r"x has shape \(2, 0\), axis 1 is empty"),
        (torch.zeros(2, 3), 1, {"dim": 2}, "dim is 2"),
        (torch.zeros(2, 3), 1, {"dim": 0.0}, "dim is 0.0"),
        (torch.tensor([0.0, torch.nan]), 1, {}, "x has NaN"),
        (torch.tensor([[0.0, 1], [0, torch.nan]]), 1, {}, r"row \(1,\) of x has NaN"),
        (torch.tensor([INF, INF, 0.0]), 1, {}, r"x has 2 entries at \+inf; it needs at most k = 1"),
        (torch.tensor([0.0, -INF]), 2, {}, "x has 1 entries that are neither masked nor -inf"),
        (torch.zeros(2), 1, {"mask": torch.tensor([False, False])}, "x has 0 entries"),
        (torch.zeros(2), 1, {"mask": torch.tensor([1, 0])}, "mask is torch.int64"),
        (torch.zeros(2), 1, {"mask": torch.ones(3, dtype=torch.bool)}, r"mask has shape \(3,\)"),
        (torch.zeros(2), 1, {"mask": torch.ones(4, 2, dtype=torch.bool)}, r"mask has shape \(4, 2"),
        (torch.zeros(2), 1, {"infeasible": "skip"}, "infeasible is 'skip'"),
    ],
)
def test_bad_input_is_refused(x, k, options, message: str) -> None:
    for function in (projection.lml, projection.lml_logits):
        with pytest.raises(ValueError, match=message):
            function(x, k, **options)
    for function in (projection.sparsemax, projection.hard_topk):
        with pytest.raises(ValueError, match=message):
            function(x, k, **options)
