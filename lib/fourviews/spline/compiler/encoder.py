r"""Compiled encoders: ReLU attention and one-hidden-layer networks in strict alternation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...attention import EncoderBlock, FeedForward, MultiHeadAttention
from ..functions.expression import exact_matrix, float_maker
from .affine import AffineMap
from .schedule import Affine, Heads, Layer

__all__ = ["CompiledEncoder", "Report"]

CHUNK_NUMBERS = 1 << 16  # of intermediate results held at once
FEWEST = 128  # points at once, for sparse products to be worth their start
MOST_NUMBERS = 1 << 23  # even for so few points


@dataclass(frozen=True)
class Report:
    """What a compiled encoder is made of.

    Attributes
    ----------
    layers
        Blocks: attention and network.
    heads, widths
        Heads of each attention, and neurons of each hidden layer.
    parameters
        Weights and offsets that are not zero.
    dense_parameters
        Entries of the same modules written out with dense matrices and an offset for every token.
    degree
        Degree of the compiled function by rule.
    source_coordinates
        Coordinates of the composed quadratic Veronese maps :math:`v_2 \\circ \\dots \\circ v_2`
        that the construction of Lai, Lim and Liu (2024, theorem 3.8) puts into every column to
        reach that degree.
    source_monomials
        Different monomials among them.
    jump
        Sum of the gaps at knots that were closed (rounding of the input's coefficients), of the
        output that has the largest; the encoder differs from the input by no more, besides rounding.
    """

    layers: int
    heads: tuple[int, ...]
    widths: tuple[int, ...]
    parameters: int
    dense_parameters: int
    degree: int
    source_coordinates: int
    source_monomials: int
    jump: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.layers} blocks of degree {self.degree} together; heads {self.heads},"
            f" neurons {self.widths}; {self.parameters} weights that are not zero"
            f" ({self.dense_parameters} entries as dense matrices); the source's construction lists"
            f" {self.source_coordinates} coordinates in every token"
        )


class _Attention(nn.Module):
    """Sparse ReLU attention: token i gets Σ_j relu(q_i k_j) v_j of every head."""

    def __init__(self, heads: Heads, columns: int, tokens: int, causal: bool, dtype, device):
        super().__init__()
        self.tokens, self.causal = tokens, causal
        count = len(heads.token)
        values: list[list[int]] = [[] for _ in range(count)]
        for value, head in enumerate(heads.head_of_value):
            values[head].append(value)
        # Heads with the constant score 1 only copy: no scores are formed for them.
        copying = [
            not heads.query.rows[h]
            and not heads.key.rows[h]
            and heads.query.constants[h] * heads.key.constants[h] == 1
            and heads.query_token[h] is None
            for h in range(count)
        ]
        groups: dict[tuple, list[int]] = {}
        for h in range(count):
            v_constant = all(not heads.value.rows[v] for v in values[h])
            kind = (
                heads.token[h],
                copying[h],
                not heads.key.rows[h],
                v_constant,
                heads.query_token[h],
            )
            groups.setdefault(kind, []).append(h)
        self.groups = []
        order: list[int] = []
        for number, ((token, copies, k_constant, v_constant, query_token), members) in enumerate(
            groups.items()
        ):
            places = [v for h in members for v in values[h]]
            order += places

            def part(affine: Affine, rows: list[int]) -> AffineMap:
                chosen = Affine([affine.rows[i] for i in rows], [affine.constants[i] for i in rows])
                return AffineMap(chosen, columns, dtype, device)

            module = nn.Module()
            module.value = part(heads.value, places)
            module.unit_value = v_constant and bool((module.value.bias == 1).all())
            if not copies:
                module.query = part(heads.query, members)
                same = all(
                    heads.query.rows[h] == heads.key.rows[h]
                    and heads.query.constants[h] == heads.key.constants[h]
                    for h in members
                )
                module.square = same and token is not None and tokens == 1
                module.key = part(heads.key, members)
                module.unit_key = bool((module.key.bias == 1).all()) and k_constant
                spread = [i for i, h in enumerate(members) for _ in values[h]]
                one_each = spread == list(range(len(members)))
                module.register_buffer(
                    "spread", None if one_each else torch.tensor(spread, device=device)
                )
            self.add_module(f"group{number}", module)
            self.groups.append((module, token, copies, k_constant, v_constant, query_token))
        back = [0] * len(order)
        for position, value in enumerate(order):
            back[value] = position
        in_order = back == list(range(len(back)))
        self.register_buffer("back", None if in_order else torch.tensor(back, device=device))
        self.width = len(order)

    def forward(self, x: Tensor) -> Tensor:
        """(features, tokens, positions) → (values, tokens, positions)."""
        s, n = self.tokens, x.shape[-1]
        flat = x.reshape(x.shape[0], s * n)
        outs = []
        for module, token, copies, k_constant, v_constant, query_token in self.groups:
            if token is None:
                outs.append(self._only(self._all_tokens(module, flat, s, n), query_token))
                continue
            there = flat if s == 1 else x[:, token]
            value = module.value.bias if v_constant else module.value(there)
            if copies:
                out = value[:, None].expand(-1, s, -1)
            else:
                query = module.query(flat).unflatten(-1, (s, n))
                if module.unit_key:
                    scores = torch.relu(query)
                elif module.square:
                    scores = query * query
                else:
                    key = module.key.bias if k_constant else module.key(there)
                    scores = torch.relu_(query * key[:, None])
                if module.spread is not None:
                    scores = scores.index_select(0, module.spread)
                out = scores if module.unit_value else scores * value[:, None]
            out = self._only(out, query_token)
            if self.causal and token:
                late = torch.arange(s, device=x.device) >= token
                out = out.masked_fill(~late[:, None], 0.0)
            outs.append(out.expand(-1, s, n))
        if not outs:
            return x.new_zeros(0, s, n)
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return out if self.back is None else out.index_select(0, self.back)

    @staticmethod
    def _only(out: Tensor, query_token: int | None) -> Tensor:
        if query_token is None:
            return out
        only = torch.arange(out.shape[1], device=out.device) == query_token
        return out.masked_fill(~only[:, None], 0.0)

    @staticmethod
    def _all_tokens(module, flat: Tensor, s: int, n: int) -> Tensor:
        query = module.query(flat).unflatten(-1, (s, n))
        key = module.key(flat).unflatten(-1, (s, n))
        value = module.value(flat).unflatten(-1, (s, n))
        out = torch.zeros_like(value)
        for j in range(s):
            scores = torch.relu(query * key[:, j, None])
            if module.spread is not None:
                scores = scores.index_select(0, module.spread)
            out = out + scores * value[:, j, None]
        return out


class _Block(nn.Module):
    def __init__(self, layer: Layer, columns: int, tokens: int, causal: bool, dtype, device):
        super().__init__()
        self.attention = _Attention(layer.heads, columns, tokens, causal, dtype, device)
        self.hidden = AffineMap(layer.hidden, self.attention.width, dtype, device)
        self.output = AffineMap(layer.output, len(layer.hidden.rows), dtype, device)
        self.plain = self.output.is_identity

    def forward(self, x: Tensor) -> Tensor:
        s, n = x.shape[1:]
        out = self.attention(x).flatten(1)
        out = torch.relu(self.hidden(out))
        return (out if self.plain else self.output(out)).unflatten(-1, (s, n))


class CompiledEncoder(nn.Module):
    r"""A ReLU encoder, or with masks a ReLU decoder, with given exact weights.

    .. math:: \varphi_t \circ \alpha_t \circ \dots \circ \varphi_1 \circ \alpha_1 , \qquad
       \alpha(X) = [\,\sigma(Q_h K_h^\top) V_h\,]_{h} , \qquad
       \varphi(x) = W_2\, \sigma(W_1 x + b_1) + b_2 ,

    where :math:`\sigma` is ReLU, all queries, keys and values are affine in X with an offset for
    every token, and φ works on each token alone: the architecture of Lai, Lim and Liu (2024,
    sections 1.2–1.4 and 1.9), without residual connections, norms or scale. Only weights that are
    not zero are stored. Forward passes are in the dtype of the module; :meth:`exact` computes the
    same in rationals, :meth:`dense` gives the blocks of :mod:`fourviews.attention`.

    Attributes
    ----------
    tokens, d_model, d_out
        s, d and r of the map ``(..., s, d) → (..., s, r)``.
    causal
        Whether every attention is masked, so that token i sees tokens 0, …, i only.
    layers
        The exact weights, block by block.
    report
        :class:`Report`.
    """

    def __init__(
        self,
        layers: list[Layer],
        tokens: int,
        features: int,
        *,
        causal: bool = False,
        domain: Callable[[Tensor], Tensor] | None = None,
        jump: float = 0.0,
        degree: int | None = None,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        self.layers, self.tokens, self.d_model, self.causal = layers, tokens, features, causal
        self.domain = domain
        columns = features
        blocks = []
        for layer in layers:
            blocks.append(_Block(layer, columns, tokens, causal, dtype, device))
            columns = len(layer.output.rows)
        self.blocks = nn.ModuleList(blocks)
        self.d_out = columns
        self.register_buffer("_like", torch.zeros((), dtype=dtype, device=device))
        widest = max(
            max(len(layer.heads.head_of_value), len(layer.hidden.rows), 1) for layer in layers
        )
        self._chunk = max(
            CHUNK_NUMBERS // (widest * tokens), min(FEWEST, MOST_NUMBERS // (widest * tokens)), 1
        )
        degree = self.rule_degree() if degree is None else degree
        self.report = _report(layers, tokens, features, degree, jump)

    def forward(self, x: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch s r"]:
        """Apply the encoder.

        Raises
        ------
        ValueError
            If shape or dtype do not fit, or if compiled with ``outside="error"`` and some point
            lies outside the domain.
        """
        self._check(x)
        batch = x.shape[:-2]
        flat = x.reshape(-1, self.tokens, self.d_model).permute(2, 1, 0)
        n = flat.shape[-1]
        outs = []
        for start in range(0, max(n, 1), self._chunk):
            part = flat[..., start : start + self._chunk].contiguous()
            for block in self.blocks:
                part = block(part)
            outs.append(part)
        out = outs[0] if len(outs) == 1 else torch.cat(outs, -1)
        return out.permute(2, 1, 0).reshape(*batch, self.tokens, self.d_out)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor) or x.dtype != self._like.dtype:
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(
                f"x is {got}; this encoder needs a tensor of {self._like.dtype}"
                " (convert x, or the encoder with .to)"
            )
        if tuple(x.shape[-2:]) != (self.tokens, self.d_model):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; it needs (..., {self.tokens}, {self.d_model})"
            )
        if self.domain is not None:
            inside = self.domain(x.detach())
            if not bool(inside.all()):
                first = x.detach().reshape(-1, *x.shape[-2:])[(~inside).reshape(-1)][0]
                raise ValueError(
                    f"{int((~inside).sum())} points lie outside the domain, the first is"
                    f' {first.tolist()}; compile with outside="extend" to continue beyond it'
                )

    def exact(self, x: Any) -> list[list[Fraction]]:
        """The same map in rational arithmetic: s rows of d numbers in, s rows of r out.

        The domain is not checked.

        Parameters
        ----------
        x
            s rows of d numbers. A number, or a row of d numbers for one token, may stand for them.

        Returns
        -------
        list of list of Fraction

        Raises
        ------
        ValueError
            If ``x`` has another shape, or a number that is not finite.
        """
        rows = exact_matrix(x, self.tokens, self.d_model)
        for layer in self.layers:
            rows = exact_layer(layer, rows, self.causal)
        return rows

    def dense(self, *, dtype: torch.dtype | None = None) -> nn.Sequential:
        """The same encoder with dense weights: blocks of :mod:`fourviews.attention`.

        The list is an :class:`torch.nn.Sequential` of :class:`~fourviews.attention.EncoderBlock`
        with ``residual=False, norm=None``; a decoder passes ``causal=True`` to each block.

        Parameters
        ----------
        dtype
            Of the weights; this encoder's if left out.

        Raises
        ------
        ValueError
            If a weight is too large for ``dtype``, or this is no floating-point dtype.
        """
        dtype = self._like.dtype if dtype is None else dtype
        blocks, columns = [], self.d_model
        for layer in self.layers:
            blocks.append(_dense_block(layer, columns, self.tokens, self.causal, dtype))
            columns = len(layer.output.rows)
        return nn.Sequential(*blocks)

    def rule_degree(self) -> int:
        """Degree by rule, weight by weight: heads add three degrees, sums take the largest."""
        degrees = [1] * self.d_model
        for layer in self.layers:
            heads = layer.heads
            of = lambda affine, d: [max((d[j] for j in row), default=0) for row in affine.rows]  # noqa: E731
            q, k, v = of(heads.query, degrees), of(heads.key, degrees), of(heads.value, degrees)
            attended = [
                q[h] + k[h] + value for h, value in zip(heads.head_of_value, v, strict=True)
            ]
            degrees = of(layer.output, of(layer.hidden, attended))
        return max(degrees, default=0)

    def extra_repr(self) -> str:
        return (
            f"tokens={self.tokens}, d_model={self.d_model}, d_out={self.d_out},"
            f" layers={len(self.layers)}, causal={self.causal}"
        )


def _apply(affine: Affine, x: list, zero, number) -> list:
    return [
        sum((x[j] * number(value) for j, value in row.items()), zero + number(constant))
        for row, constant in zip(affine.rows, affine.constants, strict=True)
    ]


def exact_layer(
    layer: Layer,
    rows: list[list],
    causal: bool,
    relu: Callable[[Any], Any] = lambda value: max(value, Fraction(0)),
    number: Callable[[Fraction], Any] = lambda value: value,
) -> list[list]:
    """One block on rows of elements of any exact ring; ``number`` turns weights into elements."""
    heads, s = layer.heads, len(rows)
    zero = rows[0][0] * 0
    query = [_apply(heads.query, row, zero, number) for row in rows]
    key = [_apply(heads.key, row, zero, number) for row in rows]
    value = [_apply(heads.value, row, zero, number) for row in rows]
    out = []
    for i in range(s):
        scores = []
        for h in range(len(heads.token)):
            only = heads.query_token[h]
            tokens = range(s) if heads.token[h] is None else [heads.token[h]]
            scores.append(
                {
                    j: relu(query[i][h] * key[j][h])
                    for j in tokens
                    if (only is None or only == i) and not (causal and j > i)
                }
            )
        attended = [
            sum((score * value[j][v] for j, score in scores[h].items()), zero)
            for v, h in enumerate(heads.head_of_value)
        ]
        hidden = [relu(entry) for entry in _apply(layer.hidden, attended, zero, number)]
        out.append(_apply(layer.output, hidden, zero, number))
    return out


class _CausalBlock(EncoderBlock):
    def forward(self, x, **options):
        return super().forward(x, causal=True, **options)


def _dense_block(layer: Layer, columns: int, tokens: int, causal: bool, dtype) -> EncoderBlock:
    heads = layer.heads
    to_float = float_maker(dtype)
    count = len(heads.token)
    widths = [heads.head_of_value.count(h) for h in range(count)]
    d_value = max(widths)
    attention = MultiHeadAttention(
        columns,
        count,
        d_key=1,
        d_value=d_value,
        d_out=len(heads.head_of_value),
        activation="relu",
        scale=1.0,
        offset_tokens=tokens,
        dtype=dtype,
    )
    seen = [0] * count
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        for h in range(count):
            token, gate, only = heads.token[h], heads.gate[h], heads.query_token[h]
            for row, weight, offset, place in (
                (heads.query, attention.weight_q, attention.offset_q, only),
                (
                    heads.key,
                    attention.weight_k,
                    attention.offset_k,
                    token if gate == "key" else None,
                ),
            ):
                for column, value in row.rows[h].items():
                    weight[h, column, 0] = to_float(value)
                offset[h, :, 0] = 0 if place is not None else to_float(row.constants[h])
                if place is not None:
                    offset[h, place, 0] = to_float(row.constants[h])
        for v, h in enumerate(heads.head_of_value):
            e = seen[h]
            seen[h] += 1
            for column, value in heads.value.rows[v].items():
                attention.weight_v[h, column, e] = to_float(value)
            gated = heads.gate[h] == "value" and heads.token[h] is not None
            where = heads.token[h] if gated else slice(None)
            attention.offset_v[h, where, e] = to_float(heads.value.constants[v])
            attention.weight_o[h, e, v] = 1
    network = FeedForward(
        len(heads.head_of_value), len(layer.hidden.rows), len(layer.output.rows), dtype=dtype
    )
    with torch.no_grad():
        for linear, affine in ((network.hidden, layer.hidden), (network.output, layer.output)):
            linear.weight.zero_()
            for i, row in enumerate(affine.rows):
                for j, value in row.items():
                    linear.weight[i, j] = to_float(value)
            linear.bias.copy_(torch.tensor([to_float(c) for c in affine.constants], dtype=dtype))
    kind = _CausalBlock if causal else EncoderBlock
    return kind(attention, network, norm=None, residual=False)


def _report(layers: list[Layer], tokens: int, features: int, degree: int, jump: float) -> Report:
    parameters = dense = 0
    columns = features
    for layer in layers:
        heads = layer.heads
        count, outputs = len(heads.token), len(heads.head_of_value)
        hidden, out = len(layer.hidden.rows), len(layer.output.rows)
        for affine in (heads.query, heads.key, heads.value, layer.hidden, layer.output):
            parameters += sum(map(len, affine.rows)) + sum(map(bool, affine.constants))
        dense += (2 * count + outputs) * (columns + tokens)
        dense += (outputs + 1) * hidden + (hidden + 1) * out
        columns = out
    coordinates = tokens * features
    for _ in range(max(0, (degree - 1).bit_length())):
        coordinates = comb(coordinates + 2, 2)
    return Report(
        layers=len(layers),
        heads=tuple(len(layer.heads.token) for layer in layers),
        widths=tuple(len(layer.hidden.rows) for layer in layers),
        parameters=parameters,
        dense_parameters=dense,
        degree=degree,
        source_coordinates=coordinates,
        source_monomials=comb(
            tokens * features + 2 ** max(0, (degree - 1).bit_length()), tokens * features
        ),
        jump=jump,
    )
