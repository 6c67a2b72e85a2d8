r"""A Transformer whose layers are steps on an energy."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..energies.attention_energy import AttentionEnergy
from ..energies.feed_forward import FeedForwardEnergy
from ..energies.rho import Rho, as_rho
from ..inputs import check_integer, check_number, check_tokens
from ..steps.proximal import NonNegative
from ..steps.sums import SumEnergy
from .admissible import AdmissibleWeight

__all__ = ["LayerEnergies", "StepKind", "UnrolledTransformer"]

StepKind = Literal["joint", "alternating", "preconditioned"]


class LayerEnergies(NamedTuple):
    """Energies around each layer, ``(layers, ...)``, each measured by that layer's own energy.

    With tied weights ``after[k]`` is ``before[k + 1]``.
    """

    before: Tensor
    after: Tensor


class UnrolledTransformer(nn.Module):
    r"""L layers, each one step on

    .. math:: E(Y) = \sum_{ij}\rho\bigl(\tfrac12\|(y_i-y_j)W_a\|^2\bigr) + \tfrac\lambda2\|YW_a\|^2
              + \tfrac\mu2\|(Y - X)W_a\|^2 + \tfrac12\operatorname{tr}(Y(I + W_f)Y^\top) + \varphi(Y) .

    This is the energy of Yang et al. (2022), Section 5.2, with the confinement that their Theorem
    3.1 needs.  φ is the indicator of the non-negative orthant with ``relu``, else 0.

    ``step`` says how a layer moves.  With g the gradient of the smooth part, w the attention
    weights, D their row sums, c the row curvatures of the majoriser:

    ``"joint"``
        :math:`\operatorname{prox}_\varphi(Y - \theta c^{-1} g)`: attention and linear map side by
        side with a residual connection.  Never raises E, for all weights and inputs and θ in
        [0, 2] (proof in :class:`SumEnergy`).
    ``"alternating"``
        :math:`U = Y + \theta(\text{attention}(Y) - Y)`, then
        :math:`\operatorname{prox}_\varphi(U - \alpha UH)`, :math:`H = I + W_f`: the layer (20) of
        the source, with its missing factor and with λ/2 and μ/2 in the denominator.  Each half
        lowers its own energy; the sum can rise.  :func:`descent_certificate` tells where it cannot.
    ``"preconditioned"``
        The same with :math:`\alpha/(2D_i + \lambda + \mu)` for α, the metric in which attention is
        a gradient step.  For :math:`W_aW_a^\top = I` and θ = α this is Algorithm 1 with equal step
        sizes in that metric, and what is true of Proposition 4.5: with
        :math:`M = 2D + \lambda + \mu`, η the largest eigenvalue of H, semidefinite w and
        :math:`\alpha \le 1/(1 + \eta/\min M)`, E does not rise where
        :math:`\|\nabla E_1\|_{M^{-1}} \le \tfrac{\min M}{\alpha\eta}\|\nabla E\|_{M^{-1}}`.  The
        region belongs to the majoriser at the current tokens and moves with them.  For the
        unequal metrics of ``"alternating"`` no such region exists: with one token and an
        ill-conditioned :math:`W_a`, E rises on a whole cone.

    Parameters
    ----------
    d, layers
        Features, and L ≥ 0.
    rank
        Columns of :math:`W_a`; d if left out.
    tied
        One energy for all layers, or one each.
    relu
        Whether layers end in ReLU.
    rho, confinement, anchoring
        ρ, λ, μ; the anchor X is the input.
    step, relaxation, step_size
        Kind of step, θ and α.
    lower, upper
        Bounds of the eigenvalues of :math:`I + W_f`, kept by :class:`AdmissibleWeight`.
    seed
        Of the initial weights; :math:`W_a` starts from Xavier's normal law.
    dtype, device
        Of the parameters.

    Raises
    ------
    ValueError
        On bad sizes, step kind or factors.
    """

    def __init__(
        self,
        d: int,
        layers: int,
        *,
        rank: int | None = None,
        tied: bool = True,
        relu: bool = False,
        rho: str | Rho = "exp",
        confinement: float = 1.0,
        anchoring: float = 0.0,
        step: StepKind = "joint",
        relaxation: float = 1.0,
        step_size: float = 1.0,
        lower: float = 0.0,
        upper: float = 1.0,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        d, layers = check_integer(d, "d", 1), check_integer(layers, "layers", 0)
        rank = d if rank is None else check_integer(rank, "rank", 1)
        if step not in get_args(StepKind):
            raise ValueError(f"step is {step!r}; it needs to be one of {get_args(StepKind)}")
        check_number(relaxation, "relaxation", 0.0, 2.0, open=True)
        check_number(step_size, "step_size", 0.0, open=True)
        AttentionEnergy(rho, confinement=confinement)  # its checks
        check_number(anchoring, "anchoring", 0.0)
        self.d = d
        self.layers, self.tied, self.relu, self.rho = layers, tied, relu, as_rho(rho)
        self.confinement, self.anchoring = float(confinement), float(anchoring)
        self.step_kind, self.relaxation, self.step_size = step, float(relaxation), float(step_size)
        generator = torch.Generator().manual_seed(seed)
        count = 1 if tied else layers
        scale = (2 / (d + rank)) ** 0.5
        self.attention_weights = nn.ParameterList(
            (scale * torch.randn(d, rank, generator=generator, dtype=dtype)).to(device)
            for _ in range(count)
        )
        self.feed_forward = nn.ModuleList(
            AdmissibleWeight(d, lower=lower, upper=upper, generator=generator, dtype=dtype).to(
                device
            )
            for _ in range(count)
        )

    def _check_input(self, X: Tensor) -> None:
        check_tokens(X, "X")
        if X.shape[-1] != self.d:
            raise ValueError(f"X has shape {tuple(X.shape)}; it needs {self.d} features")
        if self.layers and X.dtype != self.attention_weights[0].dtype:
            raise ValueError(
                f"X is {X.dtype}, the model {self.attention_weights[0].dtype}; both need the same"
                " (convert X, or the model with .to)"
            )

    def energy(
        self,
        layer: int,
        X: Float[Tensor, "*batch n d"],
        tokens: Bool[Tensor, "*batch n"] | None = None,
    ) -> SumEnergy:
        """The energy on which the layer moves, for the input X; terms: attention, feed-forward.

        Parameters
        ----------
        layer
            Number of the layer, from 0.
        X
            The network's input.
        tokens
            ``True`` at real tokens, ``False`` at padding.
        """
        if not 0 <= layer < self.layers:
            raise ValueError(f"layer is {layer}; it needs to lie in 0 … {self.layers - 1}")
        index = 0 if self.tied else layer
        attention = AttentionEnergy(
            self.rho,
            confinement=self.confinement,
            weight=self.attention_weights[index],
            tokens=tokens,
            anchor=X if self.anchoring else None,
            anchoring=self.anchoring,
        )
        linear = FeedForwardEnergy(self.feed_forward[index](), tokens=tokens)
        return SumEnergy((attention, linear), NonNegative(tokens) if self.relu else None)

    def move(self, energy: SumEnergy, Y: Float[Tensor, "*batch n d"]) -> Tensor:
        """The layer's step before φ's proximal map.

        Parameters
        ----------
        energy
            From :meth:`energy`, of this layer.
        Y
            The tokens.
        """
        attention, linear = energy.terms
        if self.step_kind == "joint":
            return energy.majoriser(Y).minimiser(self.relaxation)
        U = attention.step(Y, self.relaxation)
        if self.step_kind == "alternating":
            return linear.gradient_step(U, self.step_size)
        stiffness = 2 * attention.weights(Y).sum(-1, keepdim=True)
        stiffness = stiffness + self.confinement + self.anchoring
        safe = torch.where(stiffness > 0, stiffness, 1)
        return U - self.step_size * torch.where(stiffness > 0, linear.gradient(U) / safe, 0)

    def _finish(self, new: Tensor, old: Tensor, tokens: Tensor | None) -> Tensor:
        if self.relu:
            new = torch.relu(new)
        # Padding stays, whatever is in it.
        return new if tokens is None else torch.where(tokens[..., None], new, old)

    def forward(
        self,
        X: Float[Tensor, "*batch n d"],
        tokens: Bool[Tensor, "*batch n"] | None = None,
        *,
        return_energies: bool = False,
    ) -> Tensor | tuple[Tensor, LayerEnergies]:
        """Tokens after all layers, with the energies before and after each if asked for.

        Padding is returned as it came.

        Parameters
        ----------
        X
            Tokens of the input.
        tokens
            ``True`` at real tokens, ``False`` at padding.
        return_energies
            Return the energies before and after each layer too.

        Raises
        ------
        ValueError
            If shapes or dtypes do not fit.
        """
        self._check_input(X)
        Y, before, after = X, [], []
        for layer in range(self.layers):
            if layer == 0 or not self.tied:
                energy = self.energy(layer, X, tokens)
                for term in energy.terms:  # it lives for this pass only
                    term._one_graph = True
            new = self._finish(self.move(energy, Y), Y, tokens)
            if return_energies:
                known = self.tied and layer > 0
                before.append(after[-1] if known else energy.value(Y))
                after.append(energy.value(new))
            Y = new
        if not return_energies:
            return Y
        empty = X.new_zeros((0, *X.shape[:-2]))
        stack = (lambda xs: torch.stack(xs)) if before else (lambda xs: empty)
        return Y, LayerEnergies(stack(before), stack(after))
