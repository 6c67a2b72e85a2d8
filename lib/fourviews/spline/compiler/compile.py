r"""The compilers: from a spline or a max-definable expression to the weights of an encoder."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from ..functions.expression import Expression
from .encoder import CompiledEncoder
from .program import Program
from .schedule import schedule
from .sources import forms_of

__all__ = ["compile_decoder", "compile_encoder"]

Outside = Literal["error", "extend"]


def compile_encoder(
    f: Any,
    outside: Outside = "error",
    *,
    networks: bool = True,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> CompiledEncoder:
    r"""Weights of a ReLU encoder that computes ``f`` to rounding.

    The architecture is that of Lai, Lim and Liu (2024), theorem 3.8, the weights are sparse: only
    products that are needed, computed once and in balanced trees. A piecewise polynomial of degree
    k in one variable takes :math:`\lceil\log_3 k\rceil + 1` blocks, whatever the number of knots.

    Parameters
    ----------
    f
        A SciPy ``PPoly``, ``BSpline``, ``CubicSpline`` (or another of their kind), ``NdBSpline`` or
        ``LinearNDInterpolator``; or an :class:`~fourviews.spline.Expression`, or an array of
        expressions and numbers: ``(s, r)``, one row a token, or ``(r,)``, the same for every token.
        Of a ``LinearNDInterpolator`` in the plane triangles at the hull that are flat up to
        rounding are left out.
    outside
        ``"error"``: points outside of the spline's domain are an error when the encoder is
        called. ``"extend"``: the outermost polynomials continue. Expressions have no outside.
    networks
        ``False``: the attention computes everything, and the networks' ReLUs only occur in pairs
        :math:`z_+ - (-z)_+ = z`. That is always possible, with up to twice the blocks.
    dtype, device
        Of the module. In float64 a spline of degree up to 5 on 50 knots errs by less than 1e-10 of
        its largest value, commonly by 1e-14. In float32 it errs by about 1e-5: x itself, and the
        offsets that hold the knots, have seven digits. Steep pieces of triangulations lose more.
        Gaps at knots of up to 1e-10 of the pieces' size count as rounding of the input and are
        closed; their sum, ``report.jump``, adds to the error.

    Returns
    -------
    CompiledEncoder
        From ``(..., s, d)`` to ``(..., s, r)``. A SciPy function of d variables with r values is
        one token, s = 1: points go in as ``(..., 1, d)``, and values come out as ``(..., 1, r)``.

    Raises
    ------
    ValueError
        If ``f`` is discontinuous, has unsorted knots, coefficients that are not finite or an
        extrapolation that ``outside`` contradicts, or is none of the above; or if a weight is too
        large for ``dtype``, or this is no floating-point dtype.
    """
    if outside not in ("error", "extend"):
        raise ValueError(f'outside is {outside!r}; it needs to be "error" or "extend"')
    if isinstance(f, (Expression, np.ndarray, list, tuple)):
        return _from_expressions(f, causal=False, networks=networks, dtype=dtype, device=device)
    program = Program(networks=networks)
    forms, features, domain, jump, degree = forms_of(program, f, outside)
    layers = schedule(program, [forms], features)
    return CompiledEncoder(
        layers, 1, features, domain=domain, jump=jump, degree=degree, dtype=dtype, device=device
    )


def compile_decoder(
    f: Any,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
) -> CompiledEncoder:
    r"""Weights of a ReLU decoder, with masked attention only, that computes ``f`` to rounding.

    Corollary 3.10 of Lai, Lim and Liu (2024). The mask alone forbids that an output sees a later
    token, whatever the weights.

    Parameters
    ----------
    f
        Array ``(s, r)`` of expressions and numbers; row c may depend on tokens 0, …, c only.
    dtype, device
        Of the module.

    Returns
    -------
    CompiledEncoder
        From ``(..., s, d)`` to ``(..., s, r)``, with ``causal=True``.

    Raises
    ------
    ValueError
        If a row depends on a later token, an entry is not max-definable, or a weight is too large
        for ``dtype``.
    """
    return _from_expressions(f, causal=True, networks=True, dtype=dtype, device=device)


def _from_expressions(f: Any, *, causal: bool, networks: bool, dtype, device) -> CompiledEncoder:
    matrix = np.asarray(f, dtype=object)
    if not matrix.size or matrix.ndim > 2:
        raise ValueError(
            f"f has shape {matrix.shape}; it needs one expression or an array (r,) or (s, r) of them"
        )
    entries = np.empty(matrix.shape, dtype=object)
    shape = None
    for index in np.ndindex(matrix.shape):
        try:
            entries[index] = Expression.of(matrix[index])
        except ValueError as error:
            raise ValueError(f"entry {index} of f is not max-definable: {error}") from None
        if entries[index].shape is not None:
            if shape is not None and entries[index].shape != shape:
                raise ValueError(
                    f"entry {index} of f is in variables{entries[index].shape}, another in"
                    f" variables{shape}; they need the same matrix of variables"
                )
            shape = entries[index].shape
    if shape is None:
        raise ValueError("f has no variable; take them from spline.variables(s, d)")
    s, d = shape
    rows = entries.reshape(1, -1) if entries.ndim < 2 else entries
    if len(rows) != s and (causal or entries.ndim == 2):
        raise ValueError(f"f has {len(rows)} rows of outputs; variables({s}, {d}) have {s} tokens")
    program = Program(s, causal=causal, networks=networks)
    outputs = [[program.of(entry) for entry in row] for row in rows]
    if causal:
        for c, row in enumerate(outputs):
            for r, form in enumerate(row):
                if form.token > c:
                    raise ValueError(
                        f"f is not autoregressive: output {r} of token {c} depends on token"
                        f" {form.token}"
                    )
    degree = max(entry.degree() for entry in rows.flat)
    layers = schedule(program, outputs, d)
    return CompiledEncoder(layers, s, d, causal=causal, degree=degree, dtype=dtype, device=device)
