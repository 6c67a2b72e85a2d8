r"""Attention: the modules that every view speaks of.

Tokens are rows. A sentence of ``s`` tokens with ``d`` features is a tensor ``(..., s, d)``; any
number of leading batch dimensions may stand in front. Queries ``Q (..., q, d)``, keys
``K (..., k, d)`` and values ``V (..., k, v)`` give

.. math:: \operatorname{attention}(Q, K, V) = \varphi(\text{scale} \cdot Q K^\top)\, V ,

where :math:`\varphi` is one of

- ``"softmax"``: softmax along each row, so that a query's weights are positive and sum to one,
- ``"relu"``: :math:`\max(0, \cdot)` entrywise, without normalisation,
- ``"linear"``: the identity.

``scale`` is :math:`1/\sqrt d` unless it is given.

**Masks** are boolean, and ``True`` means *may attend*. They broadcast to ``(..., q, k)`` and
combine with ``&``: ``causal_mask(s) & padding_mask(lengths, s)``. Two promises go with them:

- A query that may attend to nothing gets the output zero, and passes zero gradients back.
- What is masked does not exist. A NaN or an infinity in a key or a value reaches only the queries
  that may attend to it: their output is NaN; all others, and their gradients, are as if the entry
  were 0.

Without a mask, NaN and infinity spread as in any matrix product.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

__all__ = [
    "Activation",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "MultiHeadAttention",
    "attention",
    "attention_weights",
    "causal_mask",
    "linear_attention",
    "padding_mask",
    "relu_attention",
    "softmax_attention",
]

#: What turns scores into weights.
Activation = Literal["softmax", "relu", "linear"]
Norm = Literal["pre", "post"]


# --- masks ---------------------------------------------------------------------------------------


def causal_mask(tokens: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "s s"]:
    """Mask under which token i attends to tokens 0, …, i and to none after it.

    Parameters
    ----------
    tokens
        Number s of tokens, 0 or more.
    device
        Where the mask lives.

    Returns
    -------
    Bool[Tensor, "s s"]
        Lower triangle, diagonal included.

    Raises
    ------
    ValueError
        If ``tokens`` is negative.
    """
    if tokens < 0:
        raise ValueError(f"tokens is {tokens}; it needs to be 0 or more")
    return torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()


def padding_mask(
    lengths: Int[Tensor, "*batch"] | list[int], tokens: int
) -> Bool[Tensor, "*batch 1 s"]:
    """Mask that hides the padding behind texts of different lengths.

    Parameters
    ----------
    lengths
        Number of real tokens of each text; they come first, padding follows.
    tokens
        Common padded length s.

    Returns
    -------
    Bool[Tensor, "*batch 1 s"]
        ``True`` at key j of text b where ``j < lengths[b]``; the axis of length 1 stands for all
        queries.

    Raises
    ------
    ValueError
        If a length is not an integer between 0 and ``tokens``.
    """
    lengths = torch.as_tensor(lengths)
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths has dtype {lengths.dtype}; it needs integers")
    if lengths.numel() and (lengths.min() < 0 or lengths.max() > tokens):
        raise ValueError(
            f"lengths run from {int(lengths.min())} to {int(lengths.max())};"
            f" each needs to lie between 0 and tokens = {tokens}"
        )
    return (torch.arange(tokens, device=lengths.device) < lengths[..., None])[..., None, :]


# --- checks --------------------------------------------------------------------------------------


def _check_activation(activation: str) -> None:
    if activation not in get_args(Activation):
        raise ValueError(
            f"activation is {activation!r}; it needs to be one of {get_args(Activation)}"
        )


def _check_floats(**tensors: Tensor) -> None:
    (first_name, first), *others = tensors.items()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} is a {type(tensor).__name__}; it needs to be a torch tensor")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} has dtype {tensor.dtype}; it needs a floating-point dtype")
        if tensor.ndim < 2:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; it needs at least two axes, (...,"
                " tokens, features)"
            )
    for name, tensor in others:
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{name} has dtype {tensor.dtype}, {first_name} has {first.dtype}; they"
                " need the same"
            )
        if tensor.device != first.device:
            raise ValueError(
                f"{name} is on {tensor.device}, {first_name} is on {first.device}; they"
                " need the same"
            )


def _check_query_key(query: Tensor, key: Tensor) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"key has {key.shape[-1]} features, query has {query.shape[-1]}; they need the"
            " same number"
        )
    if query.shape[-1] == 0:
        raise ValueError("query and key have 0 features; they need at least one")


def _batch_shape(**tensors: Tensor) -> torch.Size:
    try:
        return torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in tensors.values()))
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(tensor.shape[:-2])}" for name, tensor in tensors.items())
        raise ValueError(
            f"leading axes do not fit together: {shapes}; they need to broadcast"
        ) from None


def _check_scale(scale: float | None, d: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(d)
    if not math.isfinite(scale):
        raise ValueError(f"scale is {scale}; it needs to be a finite number")
    return float(scale)


def _check_mask(mask: Tensor, q: int, k: int, batch: torch.Size) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"mask is {got}; it needs to be a boolean tensor, True where a query may attend"
        )
    wanted = (*batch, q, k)
    try:
        fits = torch.broadcast_shapes(mask.shape, wanted) == torch.Size(wanted)
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; it needs to broadcast to (..., q, k) = {wanted}"
        )


def _full_mask(
    mask: Tensor | None, causal: bool, q: int, k: int, batch: torch.Size, device
) -> Tensor | None:
    """Check the mask and join it with the causal one; None when nothing is masked."""
    if causal and q != k:
        raise ValueError(
            f"causal needs as many queries as keys, there are {q} and {k};"
            " give the mask you mean as mask=… instead"
        )
    if mask is not None:
        _check_mask(mask, q, k, batch)
        mask = mask.expand(torch.broadcast_shapes(mask.shape, (q, k)))
    if not causal:
        return mask
    triangle = causal_mask(q, device=device)
    return triangle if mask is None else mask & triangle


# --- NaN behind masks ----------------------------------------------------------------------------


def _quarantine(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Replace what is not finite by 0 and say which tokens held it: (clean, bad tokens or None).

    A weight of zero does not silence a NaN, since 0 · NaN = NaN in the product and again in its
    gradient. So the entries leave before the products, and `_contaminate` puts a NaN back, as an
    added constant, where they were attended to: an addition hands the gradient on unchanged.
    """
    finite = torch.isfinite(x)
    if bool(finite.all()):
        return x, None
    return x.masked_fill(~finite, 0.0), ~finite.all(-1)


def _reached(mask: Tensor, bad_queries: Tensor | None, *bad_keys: Tensor | None) -> Tensor | None:
    """Queries (..., q) whose output depends on a quarantined token, or None if there is none."""
    reached = None
    if bad_queries is not None:
        reached = bad_queries & mask.any(-1)
    for bad in bad_keys:
        if bad is not None:
            hit = (mask & bad[..., None, :]).any(-1)
            reached = hit if reached is None else reached | hit
    return reached


def _contaminate(x: Tensor, reached: Tensor | None) -> Tensor:
    if reached is None:
        return x
    return x + torch.zeros_like(x).masked_fill(reached[..., None], float("nan"))


# --- the three attentions ------------------------------------------------------------------------


def _weights(scores: Tensor, activation: str, mask: Tensor | None) -> Tensor:
    if activation == "softmax":
        if mask is None:
            return torch.softmax(scores, dim=-1)
        # A row of -inf only would be 0/0. Rows without any key are set to 0 first; the last line
        # makes their weights, and with them their gradients, zero.
        empty = ~mask.any(-1, keepdim=True)
        scores = scores.masked_fill(~mask, float("-inf")).masked_fill(empty, 0.0)
        return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
    weights = torch.relu(scores) if activation == "relu" else scores
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def attention_weights(
    query: Float[Tensor, "*#batch q d"],
    key: Float[Tensor, "*#batch k d"],
    *,
    activation: Activation = "softmax",
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "*batch q k"]:
    r"""Weights :math:`\varphi(\text{scale} \cdot Q K^\top)` that each query gives to each key.

    Parameters
    ----------
    query, key
        ``(..., q, d)`` and ``(..., k, d)``.
    activation
        ``"softmax"``, ``"relu"`` or ``"linear"``.
    mask
        ``True`` where a query may attend; broadcasts to ``(..., q, k)``.
    causal
        Also apply :func:`causal_mask`; needs q = k.
    scale
        Factor in front of the scores; :math:`1/\sqrt d` if left out.

    Returns
    -------
    Float[Tensor, "*batch q k"]
        Zero where masked.

    Raises
    ------
    ValueError
        If shapes, dtypes or devices do not fit, the mask is not boolean, or the activation is
        unknown.
    """
    _check_activation(activation)
    _check_floats(query=query, key=key)
    _check_query_key(query, key)
    batch = _batch_shape(query=query, key=key)
    scale = _check_scale(scale, query.shape[-1])
    mask = _full_mask(mask, causal, query.shape[-2], key.shape[-2], batch, query.device)
    if mask is None:
        return _weights((scale * query) @ key.mT, activation, None)
    query, bad_queries = _quarantine(query)
    key, bad_keys = _quarantine(key)
    weights = _weights((scale * query) @ key.mT, activation, mask)
    return _contaminate(weights, _reached(mask, bad_queries, bad_keys))


def attention(
    query: Float[Tensor, "*#batch q d"],
    key: Float[Tensor, "*#batch k d"],
    value: Float[Tensor, "*#batch k v"],
    *,
    activation: Activation = "softmax",
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    scale: float | None = None,
    return_weights: bool = False,
) -> Float[Tensor, "*batch q v"] | tuple[Float[Tensor, "*batch q v"], Float[Tensor, "*batch q k"]]:
    r"""Attention :math:`\varphi(\text{scale} \cdot Q K^\top)\,V`.

    For softmax this is equation 1 of Vaswani et al. 2017.

    Linear attention is computed as :math:`\text{scale}\cdot Q (K^\top V)`, without the q × k
    matrix, when that takes fewer multiplications and nothing is masked, and by cumulative sums of
    :math:`k_j v_j^\top` when it is causal (Katharopoulos et al. 2020): the same result up to
    rounding.

    Parameters
    ----------
    query, key, value
        ``(..., q, d)``, ``(..., k, d)``, ``(..., k, v)``; the leading axes broadcast. k = 0 is
        allowed and gives zero.
    activation
        ``"softmax"``, ``"relu"`` (not normalised) or ``"linear"``.
    mask
        ``True`` where a query may attend; broadcasts to ``(..., q, k)``. See the module's text for
        what is promised about rows without any key and about NaN.
    causal
        Also apply :func:`causal_mask`; needs q = k.
    scale
        Factor in front of the scores; :math:`1/\sqrt d` if left out.
    return_weights
        Return ``(output, weights)``; for linear attention this forms the q × k matrix.

    Returns
    -------
    Float[Tensor, "*batch q v"]
        And the weights ``(..., q, k)`` if asked for.

    Raises
    ------
    ValueError
        If shapes, dtypes or devices do not fit, the mask is not boolean, or the activation is
        unknown.
    """
    _check_activation(activation)
    _check_floats(query=query, key=key, value=value)
    _check_query_key(query, key)
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"value has {value.shape[-2]} tokens, key has {key.shape[-2]}; they need the"
            " same number"
        )
    batch = _batch_shape(query=query, key=key, value=value)
    scale = _check_scale(scale, query.shape[-1])
    full_mask = _full_mask(mask, causal, query.shape[-2], key.shape[-2], batch, query.device)

    if activation == "linear" and not return_weights:
        if full_mask is None and _product_is_cheaper(query, value, key.shape[-2]):
            return (scale * query) @ (key.mT @ value)
        if causal and mask is None and _running_sum_is_cheaper(query, value):
            if all(bool(torch.isfinite(x).all()) for x in (query, key, value)):
                return _causal_linear(scale * query, key, value)

    if full_mask is None:
        weights = _weights((scale * query) @ key.mT, activation, None)
        out = weights @ value
    else:
        query, bad_queries = _quarantine(query)
        key, bad_keys = _quarantine(key)
        value, bad_values = _quarantine(value)
        weights = _weights((scale * query) @ key.mT, activation, full_mask)
        out = _contaminate(weights @ value, _reached(full_mask, bad_queries, bad_keys, bad_values))
        if return_weights:
            weights = _contaminate(weights, _reached(full_mask, bad_queries, bad_keys))
    return (out, weights) if return_weights else out


def _product_is_cheaper(query: Tensor, value: Tensor, k: int) -> bool:
    q, d, v = query.shape[-2], query.shape[-1], value.shape[-1]
    return (q + k) * d * v < q * k * (d + v)


def _running_sum_is_cheaper(query: Tensor, value: Tensor) -> bool:
    # The running sums take s·d·v numbers of memory, the masked matrix s².
    return query.shape[-1] * value.shape[-1] < query.shape[-2]


def _causal_linear(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    state = torch.cumsum(key[..., :, None] * value[..., None, :], dim=-3)
    return (query[..., None, :] @ state)[..., 0, :]


def softmax_attention(
    query, key, value, *, mask=None, causal=False, scale=None, return_weights=False
):
    """:func:`attention` with ``activation="softmax"``: an output is a mean of values.

    Result and errors as there.

    Parameters
    ----------
    query, key, value
        ``(..., q, d)``, ``(..., k, d)``, ``(..., k, v)``.
    mask, causal, scale, return_weights
        As in :func:`attention`.
    """
    return attention(
        query,
        key,
        value,
        activation="softmax",
        mask=mask,
        causal=causal,
        scale=scale,
        return_weights=return_weights,
    )


def relu_attention(query, key, value, *, mask=None, causal=False, scale=None, return_weights=False):
    """:func:`attention` with ``activation="relu"``: a sum over agreeing keys.

    Result and errors as there.

    Parameters
    ----------
    query, key, value
        ``(..., q, d)``, ``(..., k, d)``, ``(..., k, v)``.
    mask, causal, scale, return_weights
        As in :func:`attention`.
    """
    return attention(
        query,
        key,
        value,
        activation="relu",
        mask=mask,
        causal=causal,
        scale=scale,
        return_weights=return_weights,
    )


def linear_attention(
    query, key, value, *, mask=None, causal=False, scale=None, return_weights=False
):
    """:func:`attention` with ``activation="linear"``: the scores themselves are the weights.

    Result and errors as there.

    Parameters
    ----------
    query, key, value
        ``(..., q, d)``, ``(..., k, d)``, ``(..., k, v)``.
    mask, causal, scale, return_weights
        As in :func:`attention`.
    """
    return attention(
        query,
        key,
        value,
        activation="linear",
        mask=mask,
        causal=causal,
        scale=scale,
        return_weights=return_weights,
    )


# --- modules -------------------------------------------------------------------------------------


class MultiHeadAttention(nn.Module):
    r"""Self- or cross-attention with several heads.

    Head h computes :math:`H_h = \varphi(\text{scale}\; X W_Q^h (Z W_K^h)^\top)\, Z W_V^h`, where Z
    is the context, for self-attention X itself. The heads are concatenated and projected,

    .. math:: [H_1, \dots, H_m]\, W_O \;=\; \sum_h H_h W_O^h ,

    with :math:`W_O^h` the h-th block of rows of :math:`W_O` (Vaswani et al. 2017, section 3.2.2).

    Parameters
    ----------
    d_model
        Features of X.
    n_heads
        Number m of heads.
    d_key, d_value
        Features of a head's queries and keys, and of its values; ``d_model // n_heads`` if left
        out, and then ``n_heads`` must divide ``d_model``.
    d_out
        Features of the result; ``d_model`` if left out.
    d_context
        Features of Z for cross-attention; ``d_model`` if left out.
    activation
        ``"softmax"``, ``"relu"`` or ``"linear"``.
    scale
        Factor in front of the scores; :math:`1/\sqrt{d_\text{key}}` if left out.
    bias
        Add a learned row to queries, keys, values and to the result: the same for every token.
    offset_tokens
        s, or (queries, keys), to add learned *matrices* to queries, keys and values, one row a
        token, the same size for every input: the affine maps of the spline view. Inputs then must
        have exactly that many tokens.
    project
        ``False`` leaves out :math:`W_O` and returns the concatenation, ``n_heads * d_value`` wide.

    Attributes
    ----------
    weight_q, weight_k, weight_v
        ``(n_heads, d_model, d_key)``, ``(n_heads, d_context, d_key)``, ``(n_heads, d_context,
        d_value)``.
    weight_o
        ``(n_heads, d_value, d_out)``, or None.

    Raises
    ------
    ValueError
        If a size is not positive or does not divide, or the activation is unknown.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int = 1,
        *,
        d_key: int | None = None,
        d_value: int | None = None,
        d_out: int | None = None,
        d_context: int | None = None,
        activation: Activation = "softmax",
        scale: float | None = None,
        bias: bool = False,
        offset_tokens: int | tuple[int, int] | None = None,
        project: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        _check_activation(activation)
        _check_sizes(d_model=d_model, n_heads=n_heads)
        if (d_key is None or d_value is None) and d_model % n_heads:
            raise ValueError(
                f"n_heads = {n_heads} does not divide d_model = {d_model}; give d_key and d_value"
            )
        d_key = d_model // n_heads if d_key is None else d_key
        d_value = d_model // n_heads if d_value is None else d_value
        d_context = d_model if d_context is None else d_context
        if not project and d_out not in (None, n_heads * d_value):
            raise ValueError(
                f"d_out is {d_out}; without projection the result has n_heads * d_value ="
                f" {n_heads * d_value} features"
            )
        d_out = (d_model if project else n_heads * d_value) if d_out is None else d_out
        _check_sizes(d_key=d_key, d_value=d_value, d_out=d_out, d_context=d_context)
        self.d_model, self.n_heads, self.d_key, self.d_value = d_model, n_heads, d_key, d_value
        self.d_out, self.d_context, self.activation = d_out, d_context, activation
        self.scale = _check_scale(scale, d_key)

        def weight(*shape):
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.weight_q = weight(n_heads, d_model, d_key)
        self.weight_k = weight(n_heads, d_context, d_key)
        self.weight_v = weight(n_heads, d_context, d_value)
        self.weight_o = weight(n_heads, d_value, d_out) if project else None
        self.bias_q = weight(n_heads, 1, d_key) if bias else None
        self.bias_k = weight(n_heads, 1, d_key) if bias else None
        self.bias_v = weight(n_heads, 1, d_value) if bias else None
        self.bias_o = weight(d_out) if bias and project else None
        if offset_tokens is None:
            self.offset_tokens = None
            self.offset_q = self.offset_k = self.offset_v = None
        else:
            q, k = (
                (offset_tokens, offset_tokens) if isinstance(offset_tokens, int) else offset_tokens
            )
            _check_sizes(offset_tokens=min(q, k))
            self.offset_tokens = (q, k)
            self.offset_q = weight(n_heads, q, d_key)
            self.offset_k = weight(n_heads, k, d_key)
            self.offset_v = weight(n_heads, k, d_value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights uniformly with Glorot's bounds, head by head, and set offsets to
        zero."""
        for matrices in (self.weight_q, self.weight_k, self.weight_v):
            for matrix in matrices:
                nn.init.xavier_uniform_(matrix)
        if self.weight_o is not None:
            # The heads add up, so the bound is that of the whole (heads · d_value) × d_out matrix.
            bound = math.sqrt(6.0 / (self.n_heads * self.d_value + self.d_out))
            nn.init.uniform_(self.weight_o, -bound, bound)
        for name, parameter in self.named_parameters(recurse=False):
            if name.startswith(("bias_", "offset_")):
                nn.init.zeros_(parameter)

    def forward(
        self,
        x: Float[Tensor, "*#batch q d"],
        context: Float[Tensor, "*#batch k e"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        return_weights: bool = False,
    ) -> (
        Float[Tensor, "*batch q o"]
        | tuple[Float[Tensor, "*batch q o"], Float[Tensor, "*batch h q k"]]
    ):
        """Attend from the tokens of ``x`` to those of ``context``, or to ``x`` itself.

        ``mask`` is shared by the heads. A query without any key gets zero from every head, hence
        the output ``bias_o`` or 0. Returns ``(..., q, d_out)``, and the weights ``(..., heads, q,
        k)`` if asked for.

        Parameters
        ----------
        x
            Tokens ``(..., q, d)`` that attend.
        context
            Tokens ``(..., k, e)`` that are attended to; ``x`` without it.
        mask
            ``True`` where a query may attend; broadcasts to ``(..., q, k)``.
        causal
            Also apply :func:`causal_mask`; needs q = k.
        return_weights
            Return the weights too.
        """
        z = x if context is None else context
        _check_floats(x=x, context=z)
        self._check_input("x", x, self.d_model, 0)
        self._check_input("x" if context is None else "context", z, self.d_context, 1)
        batch = _batch_shape(x=x, context=z)
        mask = _full_mask(mask, causal, x.shape[-2], z.shape[-2], batch, x.device)
        reached = None
        if mask is not None:
            # Before the projections: x enters the weights' gradients, too.
            x, bad_x = _quarantine(x)
            z, bad_z = (x, bad_x) if context is None else _quarantine(z)
            reached = _reached(mask, bad_x, bad_z)
            mask = mask.unsqueeze(-3)  # one axis for the heads
            causal = False
        query = self._project(x, self.weight_q, self.bias_q, self.offset_q)
        key = self._project(z, self.weight_k, self.bias_k, self.offset_k)
        value = self._project(z, self.weight_v, self.bias_v, self.offset_v)
        result = attention(
            query,
            key,
            value,
            activation=self.activation,
            mask=mask,
            scale=self.scale,
            return_weights=return_weights,
        )
        heads, weights = result if return_weights else (result, None)
        heads = heads.transpose(-3, -2).flatten(-2)  # (..., q, heads · d_value)
        out = heads if self.weight_o is None else heads @ self.weight_o.flatten(0, 1)
        if self.bias_o is not None:
            out = out + self.bias_o
        out = _contaminate(out, reached)
        if not return_weights:
            return out
        return out, _contaminate(weights, None if reached is None else reached.unsqueeze(-2))

    def merged_weights(self) -> tuple[Float[Tensor, "h d e"], Float[Tensor, "h e o"]]:
        r"""The products :math:`W_Q^h W_K^{h\top}` and :math:`W_V^h W_O^h` that the output depends
        on.

        Without offsets the layer is
        :math:`\sum_h \varphi(\text{scale}\; X\, W_{QK}^h\, Z^\top)\, Z\, W_{VO}^h`.

        Returns
        -------
        tuple
            ``(n_heads, d_model, d_context)`` and ``(n_heads, d_context, d_out)``.

        Raises
        ------
        ValueError
            If the layer has biases, offsets or no output projection.
        """
        if self.bias_q is not None or self.offset_q is not None or self.weight_o is None:
            raise ValueError(
                "merged_weights needs a layer with bias=False, offset_tokens=None and project=True"
            )
        return self.weight_q @ self.weight_k.mT, self.weight_v @ self.weight_o

    def _check_input(self, name: str, x: Tensor, features: int, side: int) -> None:
        if x.shape[-1] != features:
            raise ValueError(f"{name} has {x.shape[-1]} features; this layer needs {features}")
        if x.dtype != self.weight_q.dtype:
            raise ValueError(
                f"{name} has dtype {x.dtype}, the weights have {self.weight_q.dtype}; they"
                " need the same"
            )
        if self.offset_tokens is not None and x.shape[-2] != self.offset_tokens[side]:
            raise ValueError(
                f"{name} has {x.shape[-2]} tokens; the offsets are for {self.offset_tokens[side]}"
            )

    @staticmethod
    def _project(x: Tensor, weight: Tensor, bias: Tensor | None, offset: Tensor | None) -> Tensor:
        out = x.unsqueeze(-3) @ weight
        if bias is not None:
            out = out + bias
        return out if offset is None else out + offset

    def extra_repr(self) -> str:
        return (
            f"d_model={self.d_model}, n_heads={self.n_heads}, d_key={self.d_key},"
            f" d_value={self.d_value},"
            f" d_out={self.d_out}, activation={self.activation!r}"
        )


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it needs to be 1 or more")


class FeedForward(nn.Module):
    r"""Position-wise network :math:`\max(0, X W_1 + b_1) W_2 + b_2`: the same for every token.

    Parameters
    ----------
    d_model, d_hidden
        Features in, and width of the hidden layer.
    d_out
        Features out; ``d_model`` if left out.
    bias
        Whether :math:`b_1, b_2` exist.

    Raises
    ------
    ValueError
        If a size is not positive, or the input has another number of features.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        d_out: int | None = None,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        d_out = d_model if d_out is None else d_out
        _check_sizes(d_model=d_model, d_hidden=d_hidden, d_out=d_out)
        self.d_model, self.d_out = d_model, d_out
        self.hidden = nn.Linear(d_model, d_hidden, bias=bias, device=device, dtype=dtype)
        self.output = nn.Linear(d_hidden, d_out, bias=bias, device=device, dtype=dtype)

    def forward(self, x: Float[Tensor, "*batch s d"]) -> Float[Tensor, "*batch s o"]:
        """Apply the network to every token."""
        if x.shape[-1] != self.d_model:
            raise ValueError(f"x has {x.shape[-1]} features; this layer needs {self.d_model}")
        return self.output(torch.relu(self.hidden(x)))


def _check_norm(norm: str | None) -> None:
    if norm not in (None, *get_args(Norm)):
        raise ValueError(f"norm is {norm!r}; it needs to be 'pre', 'post' or None")


class _Sublayer(nn.Module):
    """A layer with its optional residual connection and layer norm; ``forward`` takes the layer's
    result."""

    def __init__(
        self, name: str, d_in: int, d_out: int, norm: str | None, residual: bool, like: Tensor
    ):
        super().__init__()
        if residual and d_in != d_out:
            raise ValueError(
                f"{name} maps {d_in} features to {d_out}; a residual connection needs the"
                " same number,"
                " or residual=False"
            )
        self.place, self.residual = norm, residual
        width = d_in if norm == "pre" else d_out
        self.norm = (
            nn.LayerNorm(width, device=like.device, dtype=like.dtype) if norm else nn.Identity()
        )

    def before(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.place == "pre" else x

    def after(self, x: Tensor, result: Tensor) -> Tensor:
        out = x + result if self.residual else result
        return self.norm(out) if self.place == "post" else out


class EncoderBlock(nn.Module):
    """Self-attention, then a position-wise network, each with optional residual connection and
    layer norm.

    With ``norm="post"`` a step is x ← norm(x + layer(x)) (Vaswani et al. 2017), with ``"pre"`` it
    is x ← x + layer(norm(x)), with ``None`` it is x ← x + layer(x). ``residual=False`` drops the «x
    +».

    Parameters
    ----------
    attention
        Self-attention.
    feed_forward
        What every token passes through afterwards.
    norm
        ``"post"``, ``"pre"`` or None.
    residual
        Whether the input of each layer is added to its result.

    Raises
    ------
    ValueError
        If the sizes of the two layers do not fit together.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
        *,
        norm: Norm | None = "post",
        residual: bool = True,
    ):
        super().__init__()
        _check_norm(norm)
        _check_self_attention(attention)
        _check_chain("attention", attention.d_out, "feed_forward", feed_forward.d_model)
        self.attention, self.feed_forward = attention, feed_forward
        like = attention.weight_q
        self.around_attention = _Sublayer(
            "attention", attention.d_model, attention.d_out, norm, residual, like
        )
        self.around_feed_forward = _Sublayer(
            "feed_forward", feed_forward.d_model, feed_forward.d_out, norm, residual, like
        )

    def forward(
        self,
        x: Float[Tensor, "*batch s d"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "*batch s o"]:
        """Apply the block. With a mask, NaN in tokens that may not be attended to stays in those
        tokens.

        Parameters
        ----------
        x
            Tokens ``(..., s, d)``.
        mask
            ``True`` where a token may attend; broadcasts to ``(..., s, s)``.
        causal
            Also apply :func:`causal_mask`.
        """
        _check_floats(x=x)
        full_mask = _full_mask(mask, causal, x.shape[-2], x.shape[-2], x.shape[:-2], x.device)
        reached = None
        if full_mask is not None:
            x, bad = _quarantine(x)
            if bad is not None:
                reached = bad | _reached(full_mask, None, bad)
        x = self.around_attention.after(
            x, self.attention(self.around_attention.before(x), mask=mask, causal=causal)
        )
        x = self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))
        return _contaminate(x, reached)


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to an encoder's output, then a position-wise network.

    Token i of the output depends on tokens 0, …, i of the input and on the whole memory.

    Parameters
    ----------
    attention
        Self-attention; always applied causally.
    cross_attention
        Attention to the memory, or None for a decoder without encoder.
    feed_forward
        What every token passes through afterwards.
    norm, residual
        As in :class:`EncoderBlock`.

    Raises
    ------
    ValueError
        If the sizes of the layers do not fit together.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feed_forward: FeedForward,
        *,
        norm: Norm | None = "post",
        residual: bool = True,
    ):
        super().__init__()
        _check_norm(norm)
        _check_self_attention(attention)
        width, last = attention.d_out, "attention"
        if cross_attention is not None:
            _check_chain(last, width, "cross_attention", cross_attention.d_model)
            width, last = cross_attention.d_out, "cross_attention"
        _check_chain(last, width, "feed_forward", feed_forward.d_model)
        self.attention, self.cross_attention, self.feed_forward = (
            attention,
            cross_attention,
            feed_forward,
        )
        like = attention.weight_q
        self.around_attention = _Sublayer(
            "attention", attention.d_model, attention.d_out, norm, residual, like
        )
        self.around_cross_attention = (
            None
            if cross_attention is None
            else _Sublayer(
                "cross_attention",
                cross_attention.d_model,
                cross_attention.d_out,
                norm,
                residual,
                like,
            )
        )
        self.around_feed_forward = _Sublayer(
            "feed_forward", feed_forward.d_model, feed_forward.d_out, norm, residual, like
        )

    def forward(
        self,
        x: Float[Tensor, "*#batch s d"],
        memory: Float[Tensor, "*#batch k e"] | None = None,
        *,
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "*batch s o"]:
        """Apply the block; ``mask`` hides tokens of ``x`` beyond causality, ``memory_mask`` those
        of the memory.

        Parameters
        ----------
        x
            Tokens ``(..., s, d)``.
        memory
            Tokens ``(..., k, e)`` of the encoder; needed if the block reads a memory.
        mask
            ``True`` where a token may attend, besides causality.
        memory_mask
            ``True`` where a token of the memory may be attended to.
        """
        if (memory is None) != (self.cross_attention is None):
            wanted = (
                "no memory: it has no cross_attention"
                if self.cross_attention is None
                else "a memory"
            )
            raise ValueError(
                f"memory is {'missing' if memory is None else 'given'}; this block needs {wanted}"
            )
        _check_floats(x=x)
        full_mask = _full_mask(mask, True, x.shape[-2], x.shape[-2], x.shape[:-2], x.device)
        x, bad = _quarantine(x)
        reached = None if bad is None else bad | _reached(full_mask, None, bad)
        x = self.around_attention.after(
            x, self.attention(self.around_attention.before(x), mask=mask, causal=True)
        )
        if self.cross_attention is not None:
            step = self.around_cross_attention
            if memory_mask is not None:
                _check_floats(x=x, memory=memory)
                batch = _batch_shape(x=x, memory=memory)
                memory_mask = _full_mask(
                    memory_mask, False, x.shape[-2], memory.shape[-2], batch, x.device
                )
                memory, bad_memory = _quarantine(memory)
                if bad_memory is not None:
                    hit = _reached(memory_mask, None, bad_memory)
                    reached = hit if reached is None else reached | hit
            x = step.after(x, self.cross_attention(step.before(x), memory, mask=memory_mask))
        x = self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))
        return _contaminate(x, reached)


def _check_self_attention(attention: MultiHeadAttention) -> None:
    if attention.d_context != attention.d_model:
        raise ValueError(
            f"attention takes a context of {attention.d_context} features and an input"
            f" of {attention.d_model};"
            " self-attention needs the same number"
        )


def _check_chain(first: str, out: int, second: str, into: int) -> None:
    if out != into:
        raise ValueError(
            f"{first} gives {out} features, {second} takes {into}; they need the same number"
        )
