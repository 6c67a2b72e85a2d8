r"""The convex program behind a two-layer head, in the form that every solver uses.

.. math:: \min_Z\; L(A(Z)) + \beta\,\|Z\|

A head says how a first layer acts on the data and how a second layer turns hidden values into
outputs.  From the lifted variable :math:`Z = \sum_k u_k v_k^\top` of those two layers it
derives the linear map ``A`` and its adjoint; the rest (losses, norms, solvers, certificates,
CVXPY model, networks) is written once, for all heads.
"""

from __future__ import annotations

import abc
import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .arrangements import arrangements
from .cones import _project
from .losses import CrossEntropy, Squared
from .network import TwoLayerNetwork
from .norms import nuclear_norm, polar_upper_bound, singular_value_threshold

__all__ = ["Problem"]

ACTIVATIONS = ("linear", "gated_relu", "relu")
LOSSES = ("squared", "cross_entropy")
DEFAULT_GATES = 64
_MOST_TARGETS = 2**31  # 16 GB of one-hot vectors
# Data are checked in pieces of so many entries: they may be larger than the memory.
_PIECE = 2**18
# More masks than this are not kept: each part of the samples makes its own.
_LARGEST_MASKS = 2**24


class Problem(abc.ABC):
    r"""Base of all heads: data, loss, regularisation and gates, checked once.

    Parameters
    ----------
    X : (n, s, d) or, if the head allows it, (n, d) array
        Samples of tokens; numpy or torch, float32 or float64.  Never copied, and never written
        to: it may be a read-only ``numpy.memmap`` larger than the memory.
    Y : array
        Token-wise: (n, s, c) floats or (n, s) integer labels.  With ``pool="mean"`` or
        without tokens: (n, c) floats or (n,) integer labels; (n,) floats are one output.
    beta : float
        Weight of the norm, at least 0.  Weight decay :math:`\tfrac\beta2\sum\|\cdot\|^2` on
        both layers, at its least over all networks with the same Z, equals beta times the
        norm: nuclear, for ReLU quasi-nuclear.
    activation : {"linear", "gated_relu", "relu"}
    loss : {"squared", "cross_entropy"}
        ½Σ(f − Y)², or softmax cross-entropy summed over samples (and tokens).  Neither averages.
        Integer labels are one-hot under ``"squared"``; float targets under
        ``"cross_entropy"`` are probability vectors.
    pool : {None, "mean"}
        Average the outputs over the tokens before the loss.
    gates : (P, …) array, optional
        Gate vectors in the shape of the head's first weight; a gate is on where its
        pre-activation is >= 0.  For ``"relu"`` they name the candidate activation patterns.
    n_gates : int, optional
        Draw this many Gaussian gates instead (equal patterns are kept once).
        Without ``gates`` and ``n_gates``, ``"gated_relu"`` draws 64 and ``"relu"`` takes all patterns.
    classes : int, optional
        Number of outputs for integer labels; ``max(Y) + 1`` if not given.
    seed : int
        Seed of the drawn gates.

    Raises
    ------
    ValueError
        Names the argument, what came and what is needed; before any work starts.
    """

    def __init__(
        self,
        X: Float[Tensor, "n *s d"] | np.ndarray,
        Y: Tensor | np.ndarray,
        *,
        beta: float,
        activation: str = "linear",
        loss: str = "squared",
        pool: str | None = None,
        gates: Tensor | np.ndarray | None = None,
        n_gates: int | None = None,
        classes: int | None = None,
        seed: int = 0,
    ) -> None:
        _one_of("activation", activation, ACTIVATIONS)
        _one_of("loss", loss, LOSSES)
        _one_of("pool", pool, (None, "mean"))
        if not (_is_number(beta) and 0 <= beta < float("inf")):
            raise ValueError(f"beta must be a finite number >= 0, got {beta!r}")
        if not _is_integer(seed):
            raise ValueError(f"seed must be an integer, got {seed!r}")
        self.X = _features(X, self.token_axis)
        if pool is not None and self.X.ndim == 2:
            raise ValueError(
                f"pool={pool!r} averages over tokens, but X has none: shape {tuple(self.X.shape)}"
            )
        self.beta, self.activation, self.pool = float(beta), activation, pool
        target = _target(Y, self.X, loss, pool, classes)
        self.loss = (Squared if loss == "squared" else CrossEntropy)(target)
        self.n_outputs = target.shape[-1]
        _check_range(self.X, target, self.degree)
        self._derived: dict = {}
        self.gates = self._masks = None
        self.gates, self._masks, self.all_patterns = self._gating(gates, n_gates, seed)
        self._gated = None if self.gates is None else len(self.gates_to_rows(self.gates))

    # What a head provides ------------------------------------------------------------------

    #: Which shapes of X the head accepts: "required", "optional" (tokens).
    token_axis: str = "required"

    #: Outputs are of this degree in X.
    degree: int = 1

    #: Parts of the head with their own data and outputs; block j of the coefficients acts in
    #: group ``j % groups``.
    groups: int = 1

    @property
    @abc.abstractmethod
    def block_shape(self) -> tuple[int, int]:
        """(p, q): sizes of the two layers' weights, and of one block of the coefficients."""

    @property
    @abc.abstractmethod
    def gate_shape(self) -> tuple[int, ...]:
        """Shape of one gate, that of the head's first weight."""

    @abc.abstractmethod
    def first_layer(
        self, weights: Float[Tensor, "m p"], group: Tensor | None = None
    ) -> Float[Tensor, "m rows"]:
        """Pre-activations of m hidden units: the effective data matrix times each weight.

        Rows are ordered by sample.  ``group`` names each unit's group; heads with one group
        ignore it, and without it units go through the groups in turn.

        Parameters
        ----------
        weights : Tensor (m, p)
            First weights of m units.
        group : Tensor (m,), optional
            The group of each unit; without it units go through the groups in turn.
        """

    @abc.abstractmethod
    def lifted(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n *s c"]:
        r"""Outputs before pooling, :math:`\sum_j` (layers with lifted weight Z_j, mask j).

        Parameters
        ----------
        Z : Tensor (G, p, q)
            One lifted weight a block.
        masks : Tensor (G, rows) or None
            Zeros and ones, one row a block; None for a linear problem.
        group : Tensor (G,), optional
            The group of each block, as in :meth:`first_layer`.
        """

    @abc.abstractmethod
    def lifted_adjoint(
        self,
        R: Float[Tensor, "n *s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        """Adjoint of :meth:`lifted`, for as many blocks as there are masks (linear: groups).

        Parameters
        ----------
        R : Tensor (n, ..., c)
            A tensor of the shape of the outputs before pooling.
        masks : Tensor (G, rows) or None
            Zeros and ones, one row a block; None for a linear problem.
        group : Tensor (G,), optional
            The group of each block, as in :meth:`first_layer`.
        """

    @abc.abstractmethod
    def relu_polar_bound(self, R: Float[Tensor, "n *s c"]) -> float:
        """Upper bound on the polar over all activation patterns at once, listed or not."""

    @abc.abstractmethod
    def hidden_layers(
        self, first: Tensor, second: Tensor, gates: Tensor | None, group: Tensor | None = None
    ) -> TwoLayerNetwork:
        """The torch module with these weights: (m, p), (m, q) and, if gated, (m, p).

        Parameters
        ----------
        first : Tensor (m, p)
            First weights.
        second : Tensor (m, q)
            Second weights.
        gates : Tensor (m, p) or None
            The gate of each unit; None unless the activation is gated.
        group : Tensor (m,), optional
            The group of each unit, as in :meth:`first_layer`.
        """

    # What a head may do better ---------------------------------------------------------------

    def outputs(
        self,
        Z: Float[Tensor, "G p q"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "n *s c"]:
        """As :meth:`lifted`, pooled if the problem pools.

        Parameters
        ----------
        Z, masks, group
            As in :meth:`lifted`.
        """
        return self._pooled(self.lifted(Z, masks, group))

    def outputs_adjoint(
        self,
        R: Float[Tensor, "n *s c"],
        masks: Float[Tensor, "G rows"] | None,
        group: Tensor | None = None,
    ) -> Float[Tensor, "G p q"]:
        """Adjoint of :meth:`outputs`.

        Parameters
        ----------
        R : Tensor
            Of the shape of the targets.
        masks, group
            As in :meth:`lifted_adjoint`.
        """
        return self.lifted_adjoint(self._spread(R), masks, group)

    def gates_to_rows(self, gates: Float[Tensor, "P *gate"]) -> Float[Tensor, "G p"]:
        """Gates as first weights of units, one a block."""
        return gates.flatten(1)

    def rows_to_gates(self, rows: Float[Tensor, "G p"]) -> Float[Tensor, "P *gate"]:
        """Inverse of :meth:`gates_to_rows`."""
        return rows.reshape(-1, *self.gate_shape)

    # The linear map ------------------------------------------------------------------------

    @property
    def coefficient_shape(self) -> tuple[int, ...]:
        """Shape of ``coefficients``: (p, q), with a leading gate axis unless linear."""
        return self.block_shape if self._gated is None else (self._gated, *self.block_shape)

    @property
    def n_blocks(self) -> int:
        """Number of blocks of the coefficients: groups times gates."""
        return self.groups if self._gated is None else self._gated

    @property
    def masks(self) -> Float[Tensor, "G rows"] | None:
        """0/1 activation patterns, one a block; None if linear.  Made on first use if they are many."""
        if self._masks is None and self.gates is not None:
            self._masks = self._mask(self.gates)
        return self._masks

    def group_of(self, block: Tensor | None) -> Tensor | None:
        """Group of each block; None, which is everyone's group, if there is one."""
        return None if self.groups == 1 or block is None else block % self.groups

    def _masks_of(self, block: Tensor | None) -> Tensor | None:
        return self.masks if self.masks is None or block is None else self.masks[block]

    def first_point(self, start: Tensor | None, dtype: torch.dtype) -> Float[Tensor, "*G p q"]:
        """Where a solver starts: ``start``, checked, or zero.

        Parameters
        ----------
        start : Tensor or None
            Coefficients of the problem's shape.
        dtype : torch.dtype
            In which the solver computes.
        """
        if start is None:
            return torch.zeros(self.coefficient_shape, dtype=dtype, device=self.X.device)
        start = _tensor("start", start)
        if tuple(start.shape) != self.coefficient_shape or not torch.isfinite(start).all():
            raise ValueError(
                f"start must be finite and have the coefficients' shape {self.coefficient_shape}, "
                f"got shape {tuple(start.shape)}"
            )
        return start.to(self.X.device, dtype)

    def forward(self, Z: Float[Tensor, "*G p q"]) -> Float[Tensor, "n *s c"]:
        r"""The linear map A: predictions of the coefficients (pooled if the problem pools)."""
        if tuple(Z.shape) != self.coefficient_shape:
            raise ValueError(
                f"coefficients must have shape {self.coefficient_shape}, got {tuple(Z.shape)}"
            )
        self._check_dtype("coefficients", Z)
        return self.outputs(Z.reshape(-1, *self.block_shape), self.masks)

    def adjoint(self, R: Float[Tensor, "n *s c"]) -> Float[Tensor, "*G p q"]:
        r"""The adjoint A*: :math:`\langle A(Z), R\rangle = \langle Z, A^*(R)\rangle`."""
        if R.shape != self.loss.target.shape:
            raise ValueError(
                f"residual must have the predictions' shape {tuple(self.loss.target.shape)}, got {tuple(R.shape)}"
            )
        self._check_dtype("residual", R)
        return self.outputs_adjoint(R, self.masks).reshape(self.coefficient_shape)

    def _check_dtype(self, name: str, value: Tensor) -> None:
        if value.dtype != self.X.dtype:
            raise ValueError(f"{name} must have the data's dtype {self.X.dtype}, got {value.dtype}")

    def gram(
        self, index: Tensor | None = None, weights: Float[Tensor, "G"] | None = None
    ) -> Float[Tensor, "N N"]:
        r"""Matrix of AA*, here one column a prediction; heads with structure override it.

        With ``index`` (block numbers) and ``weights``: :math:`\sum_j w_jA_jA_j^*` over those
        blocks.  A head whose map treats the output columns alike may return the smaller matrix
        that acts on each column.

        Parameters
        ----------
        index : Tensor, optional
            Numbers of the blocks that count; all of them without it.
        weights : Tensor (G,), optional
            One weight for each block in ``index``; one without it.
        """
        like, masks, group = self.loss.target, self._masks_of(index), self.group_of(index)
        columns = []
        for i in range(like.numel()):
            unit = torch.zeros(like.numel(), dtype=like.dtype, device=like.device)
            unit[i] = 1.0
            Z = self.outputs_adjoint(unit.reshape(like.shape), masks, group)
            if weights is not None:
                Z = Z * weights[:, None, None]
            columns.append(self.outputs(Z, masks, group).ravel())
        return torch.stack(columns, dim=1)

    def block_predictions(self, Z: Float[Tensor, "G p"], index: Tensor) -> Float[Tensor, "G n *s"]:
        """Each block's own predictions, one output column; heads with structure override it.

        Parameters
        ----------
        Z : Tensor (G, p)
            One column of coefficients for each block in ``index``.
        index : Tensor (G,)
            Numbers of the blocks.
        """
        masks = [None] * len(Z) if self.masks is None else self.masks[index].unsqueeze(1)
        return torch.stack(
            [self.outputs(z[None, :, None], mask)[..., 0] for z, mask in zip(Z, masks, strict=True)]
        )

    def block_norm_bounds(self) -> Float[Tensor, "G"]:
        r"""Upper bounds on :math:`\|A_j\|`; infinite (no bound) unless a head knows better."""
        return torch.full((self.n_blocks,), float("inf"), dtype=self.X.dtype, device=self.X.device)

    @property
    def gram_size(self) -> int:
        """Side of the matrix that :meth:`gram` returns."""
        return self.loss.target.numel()

    def _pooled(self, output: Tensor) -> Tensor:
        return output.mean(dim=1) if self.pool == "mean" else output

    def _spread(self, R: Tensor) -> Tensor:
        """Adjoint of pooling."""
        if self.pool is None:
            return R
        tokens = self.X.shape[1]
        return (R / tokens).unsqueeze(1).expand(-1, tokens, -1)

    # Units: rank-one coefficients, never multiplied out ---------------------------------------

    def _units(self, first: Tensor, second: Tensor, block: Tensor) -> TwoLayerNetwork:
        gates = None
        if self.gates is not None and not self.cones:
            gates = self.gates_to_rows(self.gates)[block].to(first)
        return self.hidden_layers(first, second, gates, self.group_of(block))

    def units_forward(
        self, first: Float[Tensor, "m p"], second: Float[Tensor, "m q"], block: Tensor
    ) -> Float[Tensor, "n *s c"]:
        r"""Predictions of :math:`\sum_k A_{j(k)}(u_kv_k^\top)` for linear and gated units.

        Computed, like the gradients below, in the precision of the units.

        Parameters
        ----------
        first : Tensor (m, p)
            First weights u of the units.
        second : Tensor (m, q)
            Second weights v of the units.
        block : Tensor (m,)
            The block j(k) of each unit k.
        """
        with torch.no_grad():
            return self._units(first, second, block)(self.X.to(first.dtype))

    def units_first_gradient(
        self, R: Float[Tensor, "n *s c"], second: Float[Tensor, "m q"], block: Tensor
    ) -> Float[Tensor, "m p"]:
        r""":math:`A_{j(k)}^*(R)\,v_k` for each unit: predictions are linear in its first weight.

        Parameters
        ----------
        R : Tensor (n, ..., c)
            Gradient of the loss in the predictions.
        second : Tensor (m, q)
            Second weights v of the units.
        block : Tensor (m,)
            The block j(k) of each unit k.
        """
        first = second.new_zeros(len(second), self.block_shape[0])
        return self.units_passes(first, second, block)[1](R)[0]

    def units_second_gradient(
        self, R: Float[Tensor, "n *s c"], first: Float[Tensor, "m p"], block: Tensor
    ) -> Float[Tensor, "m q"]:
        r""":math:`A_{j(k)}^*(R)^\top u_k` for each unit.

        Parameters
        ----------
        R : Tensor (n, ..., c)
            Gradient of the loss in the predictions.
        first : Tensor (m, p)
            First weights u of the units.
        block : Tensor (m,)
            The block j(k) of each unit k.
        """
        second = first.new_zeros(len(first), self.block_shape[1])
        return self.units_passes(first, second, block)[1](R)[1]

    def units_passes(
        self, first: Float[Tensor, "m p"], second: Float[Tensor, "m q"], block: Tensor
    ) -> tuple[Float[Tensor, "n *s c"], Callable[[Tensor], tuple[Tensor, Tensor]]]:
        """Predictions, and the function that takes R to the gradients of both layers.

        Parameters
        ----------
        first : Tensor (m, p)
            First weights u of the units.
        second : Tensor (m, q)
            Second weights v of the units.
        block : Tensor (m,)
            The block j(k) of each unit k.
        """
        network = self._units(first, second, block)
        output = network(self.X.to(first.dtype))

        def backward(R: Tensor) -> tuple[Tensor, Tensor]:
            return torch.autograd.grad(output, (network.first, network.second), R)

        return output.detach(), backward

    def units_hidden(
        self, first: Float[Tensor, "m p"], block: Tensor
    ) -> Float[Tensor, "N w"] | None:
        r"""Hidden values H with predictions ``H @ second.view(w, c)``, one row for each row of them.

        None unless a head has such a form: every output column must see the same values.

        Parameters
        ----------
        first : Tensor (m, p)
            First weights u of the units.
        block : Tensor (m,)
            The block j(k) of each unit k.
        """
        return None

    def part(self, samples: slice) -> Problem:
        """The problem on some of the samples: its loss and map are terms of this one's."""
        twin = self._twin()
        twin.X = self.X[samples]
        twin.loss = type(self.loss)(self.loss.target[samples])
        if self._masks is not None:
            rows = self._masks.shape[1] // max(1, len(self.X))
            masks = self._masks.unflatten(1, (len(self.X), rows))
            twin._masks = masks[:, samples].flatten(1)
        return twin

    # Objective, norm and polar -------------------------------------------------------------

    @property
    def cones(self) -> bool:
        """Whether the blocks carry cone constraints: ReLU."""
        return self.activation == "relu"

    def objective(self, Z: Float[Tensor, "*G p q"]) -> float:
        r""":math:`L(A(Z)) + \beta\sum_j\|Z_j\|_*`, linear and gated ReLU.

        For ReLU the norm depends on a decomposition into neurons: see :meth:`network_objective`.
        """
        if self.cones:
            raise ValueError(
                "the ReLU objective needs neurons, not coefficients: use network_objective(network)"
            )
        if not torch.isfinite(Z).all():
            raise ValueError("coefficients must be finite, got NaN or inf")
        return float(self.loss.value(self.forward(Z)) + self.beta * self.norm(Z))

    def network_objective(self, network: TwoLayerNetwork) -> float:
        r"""Loss of the network plus :math:`\tfrac\beta2` times its squared weights."""
        with torch.no_grad():
            outputs = network(self.X)
            if outputs.shape != self.loss.target.shape:  # would be broadcast, and wrong
                raise ValueError(
                    f"network must have outputs of the targets' shape {tuple(self.loss.target.shape)}, "
                    f"got {tuple(outputs.shape)}"
                )
            return float(self.loss.value(outputs) + self.beta * network.weight_decay())

    def norm(self, Z: Float[Tensor, "*G p q"]) -> Float[Tensor, ""]:
        r"""The norm without beta: the sum of the blocks' nuclear norms."""
        return nuclear_norm(Z)

    def prox(self, Z: Float[Tensor, "*G p q"], step: float) -> Float[Tensor, "*G p q"]:
        r"""Proximal map of ``step * beta`` times the norm.

        Parameters
        ----------
        Z : Tensor (..., p, q)
            Coefficients.
        step : float
            Factor in front of the norm, beside beta.
        """
        return singular_value_threshold(Z, step * self.beta)

    def polar(self, R: Float[Tensor, "n *s c"]) -> float:
        r"""Upper bound on :math:`\max_j` polar_j(A_j*(R)), which scales a dual point.

        Spectral norms for linear and gated ReLU.  For ReLU the polar of a block M is
        :math:`\max\{\|M^\top u\| : Ku \ge 0, \|u\| \le 1\}`: for one output the longer of
        the projections of M and -M onto the cone, exactly; for several the spectral norm, an
        upper bound; and if not all patterns are listed, a bound that holds for every neuron.
        """
        if not self.cones:
            return polar_upper_bound(self.adjoint(R))
        everywhere = self.relu_polar_bound(self._spread(R)) * (1 + 1e-12)
        if not self.all_patterns:
            return everywhere
        if self.block_shape[1] == 1:
            return min(everywhere, float(self.cone_polars(R).max()) * (1 + 1e-12))
        return min(everywhere, polar_upper_bound(self.adjoint(R)))

    def effective_matrix(self, group: int = 0) -> np.ndarray:
        r"""F with pre-activations Fu, rows × p, in float64; one for each group."""
        key = ("effective", group)
        if key not in self._derived:
            self._derived[key] = self._effective_tensor(group).cpu().double().numpy()
        return self._derived[key]

    def _effective_tensor(self, group: int = 0) -> Float[Tensor, "rows p"]:
        size = self.block_shape[0]
        eye = torch.eye(size, dtype=self.X.dtype, device=self.X.device)
        where = torch.full((size,), group, device=self.X.device)
        return self.first_layer(eye, self.group_of(where)).T

    def cone_matrix(self, index: int | np.integer) -> np.ndarray:
        r"""K = (2D − I)F of one pattern, in float64; F is the effective data matrix."""
        signs = 2.0 * self.masks[index].detach().cpu().double().numpy() - 1.0
        return signs[:, None] * self.effective_matrix(int(index) % self.groups)

    def cone_polars(self, R: Float[Tensor, "n *s c"], *, floor: float = 0.0) -> np.ndarray:
        r"""For one column: length of the projection of ±A_j*(R) onto each cone, (2, P).

        A block whose norm, an upper bound, is at most ``floor`` keeps that norm instead.

        Parameters
        ----------
        R : Tensor (n, ..., c)
            A residual, of the shape of the targets.
        floor : float
            Below this, the exact length does not matter.
        """
        blocks = self.adjoint(R).reshape(-1, *self.block_shape)[..., 0]
        blocks = blocks.detach().cpu().double().numpy()
        polars = np.tile(np.linalg.norm(blocks, axis=1), (2, 1))
        for j in np.flatnonzero(polars[0] > floor):
            for side, sign in enumerate((1.0, -1.0)):
                polars[side, j] = np.linalg.norm(
                    _project(sign * blocks[j], self.cone_matrix(j)).point
                )
        return polars

    # Variants of the same problem ----------------------------------------------------------

    def _twin(self) -> Problem:
        """A copy that will hold other data: what was derived from the old goes."""
        twin = copy.copy(self)
        twin._derived = {}
        return twin

    def to(self, dtype: torch.dtype) -> Problem:
        """The same problem in another precision, with the same masks."""
        if dtype == self.X.dtype:
            return self
        twin = self._twin()
        twin.X = self.X.to(dtype)
        twin.loss = self.loss.to(dtype)
        twin.gates = None if self.gates is None else self.gates.to(dtype)
        twin._masks = None if self.masks is None else self.masks.to(dtype)
        return twin

    def on(self, device: torch.device) -> Problem:
        """The same problem on another device."""
        if device == self.X.device:
            return self
        twin = self._twin()
        twin.X = self.X.to(device)
        twin.loss = type(self.loss)(self.loss.target.to(device))
        twin.gates = None if self.gates is None else self.gates.to(device)
        twin._masks = None if self._masks is None else self._masks.to(device)
        return twin

    def with_beta(self, beta: float) -> Problem:
        """The same problem with another regularisation, a finite number >= 0."""
        if not (_is_number(beta) and 0 <= beta < float("inf")):
            raise ValueError(f"beta must be a finite number >= 0, got {beta!r}")
        twin = copy.copy(self)
        twin.beta = float(beta)
        return twin

    def gated_relaxation(self) -> Problem:
        """The gated problem on the same patterns: ReLU without its cone constraints."""
        twin = copy.copy(self)
        twin.activation = "gated_relu"
        return twin

    def pattern_of(self, first: Float[Tensor, "m p"], group: Tensor | None = None) -> Tensor:
        """Index of a listed pattern for each neuron, negative if its pattern is not listed.

        A neuron on a boundary belongs to every adjacent cone: the best fit counts.  A negative
        index still says the group: ``index % groups``.

        Parameters
        ----------
        first : Tensor (m, p)
            First weights of the neurons.
        group : Tensor (m,), optional
            The group of each neuron, as in :meth:`first_layer`.
        """
        first = first.to(self.X)
        if group is None:
            group = torch.arange(len(first), device=self.X.device) % self.groups
        lengths = torch.stack(
            [torch.linalg.vector_norm(self._effective_tensor(g), dim=1) for g in range(self.groups)]
        )
        sizes = torch.linalg.vector_norm(first, dim=1, keepdim=True)
        tiny = torch.finfo(first.dtype).tiny
        hidden = self.first_layer(first, self.group_of(group))
        cosines = hidden / (lengths[group] * sizes).clamp_min(tiny)
        index = []
        for cosine, g in zip(cosines, group.tolist(), strict=True):
            masks = self.masks[g :: self.groups]
            # Largest cosine on the wrong side, for every pattern.
            off_but_positive = (cosine.clamp_min(0) * (1 - masks)).amax(dim=1)
            on_but_negative = ((-cosine).clamp_min(0) * masks).amax(dim=1)
            least, j = torch.maximum(off_but_positive, on_but_negative).min(dim=0)
            listed = float(least) <= 1e3 * torch.finfo(cosine.dtype).eps
            index.append((int(j) if listed else -1) * self.groups + g)
        return torch.tensor(index, dtype=torch.long, device=self.X.device)

    def with_data(self, X: Tensor | np.ndarray) -> Problem:
        """The head on other inputs: masks recomputed from the gates; no targets fit it."""
        data = _features(X, self.token_axis)
        if data.shape[1:] != self.X.shape[1:] or data.dtype != self.X.dtype:
            raise ValueError(
                f"X must have shape (n, {', '.join(map(str, self.X.shape[1:]))}) and dtype {self.X.dtype} "
                f"as in training, got {tuple(data.shape)}, {data.dtype}"
            )
        _check_range(data, None, self.degree)
        twin = self._twin()
        twin.X = data.to(self.X.device)
        twin._masks = None
        return twin

    # Gates ---------------------------------------------------------------------------------

    def _mask(self, gates: Float[Tensor, "*gates"]) -> Float[Tensor, "G rows"]:
        return (self.first_layer(self.gates_to_rows(gates)) >= 0).to(self.X.dtype)

    def _gating(
        self, gates: Tensor | np.ndarray | None, n_gates: int | None, seed: int
    ) -> tuple[Tensor | None, Tensor | None, bool]:
        if self.activation == "linear":
            if gates is not None or n_gates is not None:
                raise ValueError(
                    'gates and n_gates belong to activation="gated_relu" or "relu", got "linear"'
                )
            return None, None, False
        if gates is not None and n_gates is not None:
            raise ValueError("give gates or n_gates, not both")
        if gates is not None:
            gates = self._checked_gates(_tensor("gates", gates))
            keep = self.cones or self._keeps_masks(len(self.gates_to_rows(gates)))
            return gates, self._mask(gates) if keep else None, False
        if n_gates is None and self.activation == "relu":
            rows, masks = self._every_pattern()
            return self.rows_to_gates(rows), masks, True
        if n_gates is None:
            n_gates = DEFAULT_GATES
        if not (_is_integer(n_gates) and n_gates >= 1):
            raise ValueError(f"n_gates must be an integer >= 1, got {n_gates!r}")
        rows, masks = self._drawn_patterns(int(n_gates), int(seed))
        return self.rows_to_gates(rows), masks, False

    def _checked_gates(self, gates: Tensor) -> Tensor:
        if (
            gates.ndim != 1 + len(self.gate_shape)
            or tuple(gates.shape[1:]) != self.gate_shape
            or not len(gates)
        ):
            raise ValueError(
                f"gates must have shape (P, {', '.join(map(str, self.gate_shape))}) with P >= 1, "
                f"got {tuple(gates.shape)}"
            )
        return self._like_data("gates", gates)

    def _like_data(self, name: str, value: Tensor) -> Tensor:
        if value.dtype != self.X.dtype or not torch.isfinite(value).all():
            raise ValueError(
                f"{name} must be finite and of X's dtype {self.X.dtype}, got {value.dtype}"
            )
        return value.to(self.X.device)

    def _every_pattern(self) -> tuple[Float[Tensor, "G p"], Float[Tensor, "G rows"]]:
        """A point in each cell of each group's arrangement, and the cells' patterns."""
        found = [
            arrangements(self._effective_tensor(g), return_gates=True) for g in range(self.groups)
        ]
        return (
            _in_turn([points for _, points in found]),
            _in_turn([patterns.to(self.X.dtype) for patterns, _ in found]),
        )

    def _drawn_patterns(
        self, count: int, seed: int
    ) -> tuple[Float[Tensor, "G p"], Float[Tensor, "G rows"] | None]:
        """Gaussian gates and their patterns, equal ones once; None for patterns too many to keep."""
        generator = torch.Generator().manual_seed(seed)
        size = self.block_shape[0]
        keep = self.cones or self._keeps_masks(count * self.groups)
        found = []
        for g in range(self.groups):
            drawn = torch.randn(count, size, generator=generator, dtype=torch.float64)
            drawn = drawn.to(self.X.device, self.X.dtype)
            where = torch.full((count,), g, device=self.X.device)
            if not keep:
                index = self._first_of_equals(drawn, where)
                found.append((drawn[index], drawn[index, :0]))
                continue
            masks = (self.first_layer(drawn, self.group_of(where)) >= 0).to(self.X.dtype)
            packed = np.packbits(masks.cpu().numpy().astype(bool), axis=1)
            first = np.sort(np.unique(packed, axis=0, return_index=True)[1])
            index = torch.from_numpy(first).to(self.X.device)
            found.append((drawn[index], masks[index]))
        rows = _in_turn([rows for rows, _ in found])
        return rows, _in_turn([masks for _, masks in found]) if keep else None

    @property
    def _rows_of_a_sample(self) -> int:
        """Pre-activations that one hidden unit has in a sample."""
        one = self.X.new_zeros(1, self.block_shape[0])
        group = torch.zeros(1, dtype=torch.long, device=self.X.device)
        return self.part(slice(0, 1)).first_layer(one, self.group_of(group)).shape[1]

    def _keeps_masks(self, count: int) -> bool:
        return count * len(self.X) * self._rows_of_a_sample <= _LARGEST_MASKS

    def _first_of_equals(self, rows: Float[Tensor, "P p"], block: Tensor) -> Int[Tensor, "k"]:
        """Gates whose pattern no earlier one has; patterns are compared by digests, in pieces."""
        digests = [hashlib.blake2b(digest_size=16) for _ in rows]
        step = max(1, _PIECE // (len(rows) * self._rows_of_a_sample))
        for start in range(0, len(self.X), step):
            data = self.part(slice(start, start + step))
            masks = data.first_layer(rows, self.group_of(block)) >= 0
            for digest, packed in zip(digests, np.packbits(masks.cpu().numpy(), 1), strict=True):
                digest.update(packed.tobytes())
        seen: dict[bytes, int] = {}
        for k, digest in enumerate(digests):
            seen.setdefault(digest.digest(), k)
        return torch.tensor(list(seen.values()), device=self.X.device)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(X={tuple(self.X.shape)}, Y={tuple(self.loss.target.shape)}, "
            f"beta={self.beta:g}, activation={self.activation!r}, loss={self.loss.name!r}, "
            f"pool={self.pool!r}, coefficients={self.coefficient_shape})"
        )


def _in_turn(parts: list[Tensor]) -> Tensor:
    """One entry of each group after the other.

    A group with fewer repeats its last entry: a pattern that stands twice changes no optimum.
    """
    if len(parts) == 1:
        return parts[0]
    most = max(map(len, parts))
    filled = [torch.cat([part, part[-1:].expand(most - len(part), -1)]) for part in parts]
    return torch.stack(filled, dim=1).flatten(0, 1)


def _is_number(value: object) -> bool:
    """A real number; True and False, which Python counts among the integers, are none."""
    return isinstance(value, (int, float, np.floating, np.integer)) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _one_of(name: str, value: object, allowed: tuple) -> None:
    # An array compared with a string answers entry by entry: look at the type first.
    if not isinstance(value, (str, type(None))) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _tensor(name: str, value: Tensor | np.ndarray) -> Tensor:
    if not isinstance(value, (Tensor, np.ndarray)):
        raise ValueError(
            f"{name} must be a numpy array or a torch tensor, got {type(value).__name__}"
        )
    with warnings.catch_warnings():
        # Nothing here writes to data: an array that is read-only is as good as any.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(value).detach()


def _finite(value: Tensor) -> bool:
    """Whether all entries are finite, without a temporary of their number."""
    return bool(torch.isfinite(torch.stack(torch.aminmax(value))).all()) if value.numel() else True


def _pieces(value: Tensor) -> Iterator[Tensor]:
    """Samples in pieces of about ``_PIECE`` entries."""
    step = max(1, _PIECE // max(1, value[:1].numel()))
    return (value[start : start + step] for start in range(0, len(value), step))


def _features(X: Tensor | np.ndarray, token_axis: str) -> Tensor:
    X = _tensor("X", X)
    if X.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"X must be float32 or float64, got {X.dtype}")
    dims = (3,) if token_axis == "required" else (2, 3)
    if X.ndim not in dims:
        shapes = "(n, s, d)" if token_axis == "required" else "(n, d) or (n, s, d)"
        raise ValueError(f"X must have shape {shapes}, got {tuple(X.shape)}")
    if X.numel() == 0:
        raise ValueError(f"X is empty: shape {tuple(X.shape)}")
    if not _finite(X):
        raise ValueError("X must be finite, got NaN or inf")
    return X


def _check_range(X: Tensor, target: Tensor | None, degree: int) -> None:
    """Numbers whose images or squares leave the range of floats would end as inf, NaN or zero."""
    x = degree * _magnitude(X)
    y = -math.inf if target is None else _magnitude(target)
    images = 37 if X.dtype == torch.float32 else 150
    squares = 150  # of losses and of Gram matrices, which are summed in float64
    for name, size, least, most in (
        ("X", x, -images, images),
        ("Y", y, -math.inf, squares),
        ("X and Y together", x + y, -math.inf, squares),
    ):
        if size > most or -math.inf < size < least:
            raise ValueError(
                f"{name} must be of another scale: values, of degree {degree} in X, would reach about "
                f"1e{size:.0f}, too {'large' if size > 0 else 'small'} for {str(X.dtype)[6:]} arithmetic"
            )


def _magnitude(value: Tensor) -> float:
    """Decimal logarithm of the Frobenius norm, minus infinity for zero."""
    largest = max(map(abs, map(float, torch.aminmax(value))))
    if largest == 0:
        return -math.inf
    squares = sum(float((piece.double() / largest).square().sum()) for piece in _pieces(value))
    return math.log10(largest) + 0.5 * math.log10(squares)


def _target(
    Y: Tensor | np.ndarray, X: Tensor, loss: str, pool: str | None, classes: int | None
) -> Tensor:
    """Targets as floats in the shape of the predictions, in X's dtype and on its device."""
    Y = _tensor("Y", Y)
    leading = X.shape[:1] if pool == "mean" or X.ndim == 2 else X.shape[:2]
    names = ("samples", "tokens")[: len(leading)]
    if Y.dtype == torch.bool or Y.is_complex():
        raise ValueError(f"Y must hold floats or integer labels, got {Y.dtype}")
    for axis, name in enumerate(names):
        if Y.ndim <= axis or Y.shape[axis] != leading[axis]:
            got = Y.shape[axis] if Y.ndim > axis else "no"
            per_sample = name == "tokens" and Y.ndim < 3
            hint = '; for one target a sample take pool="mean"' if per_sample else ""
            raise ValueError(
                f"Y has {got} {name}, X has {leading[axis]} (shapes {tuple(Y.shape)}, {tuple(X.shape)})"
                + hint
            )
    if Y.is_floating_point():
        if Y.dtype != X.dtype:
            raise ValueError(f"Y must have X's dtype {X.dtype}, got {Y.dtype}")
        if Y.ndim == 1 and len(leading) == 1:
            Y = Y[:, None]
        if Y.ndim != len(leading) + 1 or Y.shape[-1] == 0:
            raise ValueError(
                f"float Y must have shape ({', '.join('ns'[: len(leading)])}, c) with c >= 1, got {tuple(Y.shape)}"
            )
        if not _finite(Y):
            raise ValueError("Y must be finite, got NaN or inf")
        if classes is not None:
            raise ValueError(f"classes goes with integer labels, but Y is {Y.dtype}")
        if loss == "cross_entropy":
            # Rounding of a normalised float32 row stays far below this.
            tolerance = 1e-3 if Y.dtype == torch.float32 else 1e-6
            sums = Y.sum(-1)
            if Y.min() < 0 or ((sums - 1).abs() > tolerance).any():
                raise ValueError(
                    "float Y under cross_entropy must be probability vectors (non-negative, sum 1), got "
                    f"minimum {float(Y.min()):g} and sums {float(sums.min()):g} to {float(sums.max()):g}"
                )
            if Y.shape[-1] < 2:
                raise ValueError("cross_entropy needs at least 2 classes, got 1")
        return Y.to(X.device)
    if Y.ndim != len(leading):
        raise ValueError(
            f"integer Y are labels and must have shape {tuple(leading)}, got {tuple(Y.shape)}; "
            "convert to floats for real-valued targets"
        )
    Y = Y.long()
    low, high = int(Y.min()), int(Y.max())
    if classes is None:
        classes = high + 1
    if not (_is_integer(classes) and classes >= 1):
        raise ValueError(f"classes must be an integer >= 1, got {classes!r}")
    if low < 0 or high >= classes:
        raise ValueError(f"labels in Y must lie in 0 … {classes - 1}, got {low} … {high}")
    if loss == "cross_entropy" and classes < 2:
        raise ValueError(f"cross_entropy needs at least 2 classes, got {classes} (pass classes)")
    if Y.numel() * int(classes) > _MOST_TARGETS:
        raise ValueError(
            f"labels in Y make {classes:,} outputs for each of {Y.numel():,} targets, more than "
            f"{_MOST_TARGETS:,} numbers; number the classes 0, 1, 2 …"
        )
    return torch.nn.functional.one_hot(Y, int(classes)).to(X.device, X.dtype)
