"""The LML projection: against plain root finding in torch, a conic layer, and softmax.

The rivals solve the same rows in the same precision, and each row of a table gives the largest
|Σy - k| beside the time: fast and inaccurate would be no comparison.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator

import torch
from results import OURS, Row
from timing import timed
from torch import Tensor

from fourviews import projection

K = 5
BATCH = 256


# --- rivals ------------------------------------------------------------------------------


class Bracketing(torch.autograd.Function):
    """100 halvings of a bracket, and the printed backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        low = -x.amax(-1, keepdim=True) - 30.0
        high = -x.amin(-1, keepdim=True) + 30.0
        for _ in range(100):
            middle = (low + high) / 2
            above = torch.sigmoid(x + middle).sum(-1, keepdim=True) > K
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        y = torch.sigmoid(x + (low + high) / 2)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        w = y * (1 - y)
        return w * (grad - (w * grad).sum(-1, keepdim=True) / w.sum(-1, keepdim=True))


def _newton_step(x: Tensor, nu: Tensor) -> tuple[Tensor, float]:
    """One step on Σσ(x + ν) = k, no longer than log n, and the residual before it."""
    y = torch.sigmoid(x + nu)
    excess = y.sum(-1, keepdim=True) - K
    slope = (y * (1 - y)).sum(-1, keepdim=True)
    limit = math.log(x.shape[-1])
    return nu - (excess / slope).clamp(-limit, limit), float(excess.detach().abs().max())


def unrolled_newton(x: Tensor, differentiate_all: bool = True) -> Tensor:
    """Newton's method with autograd through all its steps, or through one more after the last.

    It starts left of the root, where σ(max x + ν) = k/n, and stops as soon as the residual of all
    rows is that of rounding, so that no step is wasted.
    """
    n = x.shape[-1]
    nu = math.log(K / (n - K)) - x.detach().amax(-1, keepdim=True)
    enough = 4 * torch.finfo(x.dtype).eps * K
    with torch.set_grad_enabled(differentiate_all and torch.is_grad_enabled()):
        for _ in range(50):
            nu, excess = _newton_step(x, nu)
            if excess <= enough:
                break
    if not differentiate_all and torch.is_grad_enabled():
        nu, _ = _newton_step(x, nu)
    return torch.sigmoid(x + nu)


def conic_layer(n: int) -> Callable[[Tensor], Tensor] | None:
    """The same program as a differentiable convex layer; None without the package."""
    try:
        import cvxpy as cp
        from cvxpylayers.torch import CvxpyLayer
    except ModuleNotFoundError:
        return None
    x, y = cp.Parameter(n), cp.Variable(n)
    entropy = cp.sum(cp.entr(y) + cp.entr(1 - y))
    problem = cp.Problem(cp.Minimize(-x @ y - entropy), [cp.sum(y) == K])
    layer = CvxpyLayer(problem, parameters=[x], variables=[y])
    return lambda rows: layer(rows)[0]


# --- measuring ---------------------------------------------------------------------------


def both_passes(layer: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Callable[[], None]:
    def run() -> None:
        x.grad = None
        layer(x).backward(grad)

    return run


def residual(layer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    with torch.no_grad():
        return float((layer(x).double().sum(-1) - K).abs().max())


def against_root_finding(n: int, dtype: torch.dtype, rounds: int) -> Iterator[str]:
    generator = torch.Generator().manual_seed(n)
    x = (3 * torch.randn(BATCH, n, generator=generator)).to(dtype).requires_grad_()
    grad = torch.randn(BATCH, n, generator=generator).to(dtype)
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        OURS: lambda rows: projection.lml(rows, K),
        "bracketing, 100 steps": Bracketing.apply,
        "Newton, unrolled": unrolled_newton,
        "Newton, last step": lambda rows: unrolled_newton(rows, differentiate_all=False),
        "softmax": lambda rows: torch.softmax(rows, -1),
    }
    times = timed({name: both_passes(f, x, grad) for name, f in layers.items()}, rounds)
    ours = statistics.median(times[OURS])
    yield f"n = {n}, batch {BATCH}, k = {K}, {str(dtype).removeprefix('torch.')}"
    for name, layer in layers.items():
        seconds = statistics.median(times[name])
        apart = None if name == "softmax" else residual(layer, x)
        said = "" if apart is None else f"   residual {apart:.1e}"
        yield Row(
            f"    {name:22} {1e3 * seconds:9.2f} ms   ratio {seconds / ours:7.2f}{said}",
            "lml",
            problem=f"n = {n}, batch {BATCH}, {str(dtype).removeprefix('torch.')}",
            size=n,
            solver=name,
            seconds=seconds,
            ratio=seconds / ours,
            accuracy=apart,
        )


def against_a_conic_layer(n: int, batch: int, rounds: int) -> Iterator[str]:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(batch, n, generator=generator, dtype=torch.float64).requires_grad_()
    grad = torch.randn(batch, n, generator=generator, dtype=torch.float64)
    conic = conic_layer(n)
    yield f"n = {n}, batch {batch}, k = {K}, float64: against cvxpylayers"
    if conic is None:
        yield "    cvxpylayers is not installed: left out"
        return
    ours = lambda rows: projection.lml(rows, K)  # noqa: E731
    fast = statistics.median(timed({"ours": both_passes(ours, x, grad)}, 20)["ours"])
    slow = statistics.median(timed({"conic": both_passes(conic, x, grad)}, rounds)["conic"])
    for name, layer, seconds in ((OURS, ours, fast), ("cvxpylayers", conic, slow)):
        apart = residual(layer, x)
        yield Row(
            f"    {name:22} {1e3 * seconds:9.2f} ms   ratio {seconds / fast:7.1f}"
            f"   residual {apart:.1e}",
            "lml",
            problem=f"n = {n}, batch {batch}, float64",
            size=n,
            solver=name,
            seconds=seconds,
            ratio=seconds / fast,
            accuracy=apart,
        )


def training_step(
    network: torch.nn.Module, x: Tensor, label: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[], None]:
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)

    def run() -> None:
        optimizer.zero_grad()
        loss(network(x), label).backward()
        optimizer.step()

    return run


def against_softmax_in_training(quick: bool, rounds: int) -> Iterator[str]:
    """A convolutional backbone in the step, and frozen features before one linear layer."""
    torch.manual_seed(0)
    batch, classes, width = 64, 100, 16 if quick else 48
    image = torch.randn(batch, 3, 32, 32)
    label = torch.arange(batch) % classes
    channels = (3, width, 2 * width, 4 * width)
    blocks: list[torch.nn.Module] = []
    for a, b in zip(channels, channels[1:], strict=False):
        blocks += [torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    backbone = torch.nn.Sequential(
        *blocks, torch.nn.Flatten(), torch.nn.Linear(4 * width * 16, classes)
    )
    features = torch.randn(batch, 512)
    head = torch.nn.Linear(512, classes)
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "LML": lambda z, label: projection.lml_loss(z, label, K),
        "softmax": torch.nn.functional.cross_entropy,
    }
    yield f"one training step, batch {batch}, {classes} classes, LML loss against cross-entropy"
    for name, network, x in (
        ("backbone in the step", backbone, image),
        ("frozen features", head, features),
    ):
        steps = {kind: training_step(network, x, label, loss) for kind, loss in losses.items()}
        times = timed(steps, rounds if network is backbone else 10 * rounds)
        lml, softmax = (statistics.median(times[kind]) for kind in ("LML", "softmax"))
        # Of neighbours in time, since the machine's speed wanders more than the two differ.
        ratio = statistics.median(
            a / b for a, b in zip(times["LML"], times["softmax"], strict=True)
        )
        parameters = sum(p.numel() for p in network.parameters())
        yield Row(
            f"    {name:22} LML {1e3 * lml:9.2f} ms, softmax {1e3 * softmax:9.2f} ms,"
            f" ratio {ratio:.3f}   ({parameters} weights)",
            "training",
            problem=name,
            size=parameters,
            solver="LML loss by cross-entropy",
            seconds=lml,
            ratio=ratio,
            accuracy=None,
        )


def tables(quick: bool = False) -> Iterator[str]:
    """Rows of text; ``quick`` takes smaller sizes and fewer repetitions."""
    rounds = 3 if quick else 15
    yield "LML projection, forward and backward; ratio: time of the rival by ours"
    yield ""
    for n in (1000,) if quick else (1000, 10_000):
        for dtype in (torch.float32, torch.float64):
            yield from against_root_finding(n, dtype, rounds)
    yield from against_a_conic_layer(100, 4 if quick else 32, 1 if quick else 3)
    yield from against_softmax_in_training(quick, rounds)
