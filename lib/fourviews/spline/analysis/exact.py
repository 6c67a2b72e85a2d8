"""Forward passes of ReLU modules in any exact ring: rationals, or polynomials along a line."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from torch import Tensor, nn

from ...attention import DecoderBlock, EncoderBlock, FeedForward, MultiHeadAttention
from ..compiler.encoder import CompiledEncoder, _CausalBlock, exact_layer

Rows = list[list[Any]]


class ExactForward:
    """Evaluates modules on matrices of ring elements.

    Parameters
    ----------
    relu
        What is done at every ReLU.
    number
        Turns a Fraction into an element that multiplies ring elements.
    """

    def __init__(
        self,
        relu: Callable[[Any], Any] = lambda value: max(value, Fraction(0)),
        number: Callable[[Fraction], Any] = lambda value: value,
    ):
        self.relu, self.number = relu, number

    def __call__(
        self, module: nn.Module, x: Rows, memory: Rows | None = None, causal: bool = False
    ) -> Rows:
        if not x:
            raise ValueError("the input has no token; it needs one or more")
        if isinstance(module, CompiledEncoder):
            if len(x) != module.tokens or any(len(row) != module.d_model for row in x):
                raise ValueError(
                    f"the input is {len(x)} × {len(x[0])}; the encoder needs"
                    f" {module.tokens} × {module.d_model}"
                )
            for layer in module.layers:
                x = exact_layer(layer, x, module.causal, self.relu, self.number)
            return x
        if isinstance(module, (nn.Sequential, nn.ModuleList)):
            for part in module:
                x = self(part, x, memory, causal)
            return x
        if isinstance(module, (nn.Identity, nn.Dropout)):
            return x
        if isinstance(module, nn.ReLU):
            return [[self.relu(entry) for entry in row] for row in x]
        if isinstance(module, nn.Linear):
            return self._affine(x, module.weight.T, module.bias)
        if isinstance(module, FeedForward):
            hidden = self(nn.ReLU(), self(module.hidden, x))
            return self(module.output, hidden)
        if isinstance(module, MultiHeadAttention):
            return self._attention(module, x, x if memory is None else memory, causal)
        if isinstance(module, (EncoderBlock, DecoderBlock)):
            return self._block(module, x, memory, causal)
        raise ValueError(
            f"a {type(module).__name__} has no exact forward pass; known are Linear, ReLU,"
            " Sequential, FeedForward, MultiHeadAttention, EncoderBlock, DecoderBlock and compiled"
            " encoders"
        )

    def _block(self, block, x: Rows, memory: Rows | None, causal: bool) -> Rows:
        decoder = isinstance(block, DecoderBlock)
        steps = [(block.attention, block.around_attention, None)]
        if decoder and block.cross_attention is not None:
            if memory is None:
                raise ValueError("memory is missing; a block with cross_attention needs one")
            steps.append((block.cross_attention, block.around_cross_attention, memory))
        steps.append((block.feed_forward, block.around_feed_forward, None))
        for place, (layer, around, context) in enumerate(steps):
            if around.place is not None:
                raise ValueError("a layer norm divides by a root: it is no polynomial")
            masked = place == 0 and (decoder or causal or isinstance(block, _CausalBlock))
            out = self(layer, x, context, masked)
            if around.residual:
                out = [
                    [a + b for a, b in zip(p, q, strict=True)] for p, q in zip(x, out, strict=True)
                ]
            x = out
        return x

    def _affine(self, x: Rows, weight: Tensor, *offsets: Tensor | None) -> Rows:
        if any(len(row) != weight.shape[0] for row in x):
            raise ValueError(
                f"the input has tokens of {len(x[0])} numbers; a layer needs {weight.shape[0]}"
            )
        columns = [[Fraction(v) for v in column] for column in weight.detach().T.tolist()]
        out = []
        for i, row in enumerate(x):
            added = [[ZERO] * len(columns)]
            for offset in offsets:
                if offset is not None:
                    values = offset.detach()
                    values = values[i] if values.ndim == 2 else values
                    added.append([Fraction(v) for v in values.tolist()])
            new = []
            for c, column in enumerate(columns):
                total = row[0] * self.number(column[0]) + self.number(sum(a[c] for a in added))
                for weight_value, entry in zip(column[1:], row[1:], strict=True):
                    if weight_value:
                        total = total + entry * self.number(weight_value)
                new.append(total)
            out.append(new)
        return out

    def _attention(self, module: MultiHeadAttention, x: Rows, z: Rows, causal: bool) -> Rows:
        if module.activation == "softmax":
            raise ValueError("softmax attention is no spline; it needs activation='relu'")
        scale = self.number(Fraction(module.scale))
        heads: list[Rows] = []
        for h in range(module.n_heads):

            def project(rows, name, h=h):
                weight = getattr(module, f"weight_{name}")[h]
                bias, offset = getattr(module, f"bias_{name}"), getattr(module, f"offset_{name}")
                parts = [t[h] for t in (bias, offset) if t is not None]
                for t in parts:
                    if t.ndim == 2 and len(t) not in (1, len(rows)):
                        raise ValueError(
                            f"the offsets are those of {len(t)} tokens; there are {len(rows)}"
                        )
                parts = [
                    t[0] if t.ndim == 2 and len(t) == 1 and len(rows) > 1 else t for t in parts
                ]
                return self._affine(rows, weight, *parts)

            query, key, value = project(x, "q"), project(z, "k"), project(z, "v")
            out = []
            for i, q in enumerate(query):
                total: list[Any] = []
                for j, (k, v) in enumerate(zip(key, value, strict=True)):
                    if causal and j > i:
                        continue
                    score = q[0] * k[0]
                    for a, b in zip(q[1:], k[1:], strict=True):
                        score = score + a * b
                    score = score * scale
                    score = self.relu(score) if module.activation == "relu" else score
                    terms = [score * entry for entry in v]
                    total = (
                        terms if not total else [a + b for a, b in zip(total, terms, strict=True)]
                    )
                out.append(total)
            heads.append(out)
        joined = [[entry for head in heads for entry in head[i]] for i in range(len(x))]
        if module.weight_o is None:
            return joined
        return self._affine(joined, module.weight_o.flatten(0, 1), module.bias_o)


ZERO = Fraction(0)
