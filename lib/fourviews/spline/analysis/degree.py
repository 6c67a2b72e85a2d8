r"""The degree of a module as a spline: by rule, and measured exactly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from torch import nn

from ...attention import DecoderBlock, EncoderBlock, FeedForward, MultiHeadAttention
from ..compiler.encoder import CompiledEncoder
from ..functions.expression import Expression, whole_number
from .exact import ExactForward, Rows

__all__ = ["degree", "measured_degree", "transformer_degree"]


def degree(module: nn.Module | Expression, *, input: int = 1, memory: int = 1) -> int:
    r"""A bound of the degree by rule: degrees add in products and multiply in compositions.

    ReLU attention adds the degrees of query, key and value, :math:`a + 2b` for queries from
    something of degree a, keys and values from something of degree b; affine maps, ReLU and
    residual connections keep the degree (Lai, Lim and Liu 2024, lemma 3.2, theorem 3.3).

    Parameters
    ----------
    module
        Modules of :mod:`fourviews.attention` with ReLU (or linear) attention and without norms,
        ``Linear``, ``ReLU``, ``Sequential`` or ``ModuleList`` of them, compiled encoders, or an
        expression.
    input, memory
        Degree of the input, and of the memory that cross-attention reads, in the variables.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        For softmax attention, layer norms and unknown modules: they are no splines.
    """
    input, memory = whole_number(input, "input"), whole_number(memory, "memory")
    if isinstance(module, Expression):
        return input * module.degree()
    if isinstance(module, CompiledEncoder):
        return input * module.rule_degree()
    if isinstance(module, (nn.Sequential, nn.ModuleList)):
        for part in module:
            input = degree(part, input=input, memory=memory)
        return input
    if isinstance(module, (nn.Linear, nn.ReLU, nn.Identity, nn.Dropout, FeedForward)):
        return input
    if isinstance(module, MultiHeadAttention):
        if module.activation == "softmax":
            raise ValueError(
                "softmax attention is no spline and has no degree; it needs activation='relu'"
            )
        return 3 * input
    if isinstance(module, (EncoderBlock, DecoderBlock)):
        steps = [module.around_attention, module.around_feed_forward]
        cross = getattr(module, "cross_attention", None)
        if cross is not None:
            steps.append(module.around_cross_attention)
        if any(step.place is not None for step in steps):
            raise ValueError("a layer norm divides by a root: the block is no spline")
        result = degree(module.attention, input=input)
        if cross is not None:
            degree(cross)  # softmax is refused there, too
            result = result + 2 * memory
        return result
    raise ValueError(
        f"module is a {type(module).__name__}, whose degree is not known; known are Linear, ReLU,"
        " Sequential, FeedForward, MultiHeadAttention, EncoderBlock, DecoderBlock and compiled"
        " encoders"
    )


def transformer_degree(encoder_layers: int, decoder_layers: int) -> int:
    r"""Degree :math:`3^{s+t} + 3^t - 3^s` of s encoder blocks read by t encoder–decoder blocks.

    A block takes its input of degree D to 3D by masked attention, and cross-attention adds twice
    the memory's degree :math:`3^s`; so :math:`D_t = 3 D_{t-1} + 2 \cdot 3^s` with :math:`D_0 = 1`,
    that is :math:`D_t + 3^s = 3^t (1 + 3^s)`. For s = 0, t = 1 this is 5 (theorem 3.3 (vi)).

    Parameters
    ----------
    encoder_layers, decoder_layers
        s and t.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If a number is negative, or not whole.
    """
    s = whole_number(encoder_layers, "encoder_layers")
    t = whole_number(decoder_layers, "decoder_layers")
    return 3 ** (s + t) + 3**t - 3**s


def measured_degree(
    module: nn.Module,
    shape: tuple[int, int],
    *,
    memory_shape: tuple[int, int] | None = None,
    encoder: nn.Module | None = None,
    moving: Literal["both", "input", "memory"] = "both",
    causal: bool = False,
    limit: int | None = None,
    seed: int = 0,
    lines: int = 1,
) -> int:
    r"""The degree along a random line inside one sign class, in rational arithmetic.

    Exact values at equidistant points inside one class of the partition belong to one polynomial;
    its degree is the largest order of finite differences that is not zero. The weights' floats
    are taken as the rationals that they are, so «zero» means zero. A random line shows the degree
    of the class with probability 1.

    Parameters
    ----------
    module
        As for :func:`degree`.
    shape
        (s, d) of the input.
    memory_shape
        (s, d) of the memory, for modules with cross-attention.
    encoder
        Applied to the memory first.
    moving
        Which arguments move along the line; the others stay.
    causal
        Mask self-attention.
    limit
        Largest degree to look for; the degree by rule if left out. Two further differences are
        formed to see that they vanish.
    seed
        Of the point and the direction.
    lines
        Take the largest degree on so many lines: in some classes ReLUs switch much of a module
        off.

    Returns
    -------
    int
        −1 for the zero function.

    Raises
    ------
    ValueError
        If the differences beyond ``limit`` do not vanish, the line starts on the boundary of a sign
        class, the module needs another shape, or ``moving`` is unknown.
    """
    if moving not in ("both", "input", "memory"):
        raise ValueError(f'moving is {moving!r}; it needs to be "both", "input" or "memory"')
    if limit is None:
        read = 1 if encoder is None else degree(encoder)
        limit = degree(module, memory=read)
    whole_number(limit, "limit"), whole_number(lines, "lines", 1)
    for name, size in (("shape", shape), ("memory_shape", memory_shape)):
        for side in size or ():
            whole_number(side, f"a side of {name}", 1)
    generator = random.Random(seed)
    return max(
        _on_a_line(module, shape, memory_shape, encoder, moving, causal, limit, generator)
        for _ in range(lines)
    )


def _on_a_line(module, shape, memory_shape, encoder, moving, causal, limit, generator) -> int:
    def draw(size: tuple[int, int]) -> Rows:
        return [
            # A prime denominator: no knot of a spline lies there by accident.
            [Fraction(generator.randint(-2000, 2000), 997) for _ in range(size[1])]
            for _ in range(size[0])
        ]

    point, direction = draw(shape), draw(shape)
    other, other_direction = (draw(memory_shape) if memory_shape else [] for _ in range(2))

    def at(step: Fraction) -> tuple[list[Fraction], tuple[int, ...]]:
        signs: list[int] = []

        def relu(value):
            signs.append((value > 0) - (value < 0))
            return max(value, Fraction(0))

        forward = ExactForward(relu)
        x = _moved(point, direction, step if moving != "memory" else 0)
        memory = None
        if memory_shape:
            memory = _moved(other, other_direction, step if moving != "input" else 0)
            if encoder is not None:
                memory = forward(encoder, memory)
        out = forward(module, x, memory, causal)
        return [entry for row in out for entry in row], tuple(signs)

    size = Fraction(1, 2**10)
    for _ in range(20):
        values, signs = zip(*(at(i * size) for i in range(limit + 3)), strict=True)
        if len(set(signs)) == 1:
            break
        size /= 2**6
    else:
        raise ValueError("the line starts on the boundary of a class; take another seed")
    differences: Sequence = values
    found = -1
    for order in range(limit + 3):
        if any(any(entry) for entry in differences):
            found = order
        differences = [
            [b - a for a, b in zip(p, q, strict=True)]
            for p, q in zip(differences, differences[1:], strict=False)
        ]
    if found > limit:
        raise ValueError(f"the differences of order {found} do not vanish; limit is {limit}")
    return found


def _moved(point: Rows, direction: Rows, step) -> Rows:
    return [
        [a + step * b for a, b in zip(p, q, strict=True)]
        for p, q in zip(point, direction, strict=True)
    ]
