"""From the features of a network to a hundred: means of neighbours, or principal components."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from .casting import cast, numpy_dtype
from .image_tokens import ImageTokens
from .moments import mean_and_covariance, moments_of
from .token_store import TokenStore, batches, described, write_store

# A direction whose variance is a smaller share of the largest is rounding error.
_RANK = 1e-12


@dataclass(frozen=True, repr=False, eq=False)
class FeatureReduction:
    """An affine map of features, x ↦ (x − centre)·matrix, with a constant feature if wanted.

    Being affine it commutes with the mean over tokens.

    Attributes
    ----------
    how
        ``"pca"`` or ``"average"``.
    centre
        ``(d,)``, zero for averages.
    matrix
        ``(d, to)``, its columns scaled if ``scaled``.
    scaled, constant
        As asked for.
    explained
        Share of the training tokens' variance that the components keep; None for averages.
    """

    how: Literal["pca", "average"]
    centre: Float64[Tensor, "d"]
    matrix: Float64[Tensor, "d to"]
    scaled: bool
    constant: bool
    explained: float | None

    @property
    def digest(self) -> str:
        """SHA-256 of the map."""
        name = hashlib.sha256(f"{tuple(self.matrix.shape)} {self.constant}".encode())
        for part in (self.centre, self.matrix):
            name.update(np.ascontiguousarray(part.numpy()))
        return name.hexdigest()

    @overload
    def apply(self, tokens: TokenStore, **options) -> TokenStore: ...
    @overload
    def apply(self, tokens: ImageTokens, **options) -> ImageTokens: ...
    @overload
    def apply(self, tokens: Tensor, **options) -> Tensor: ...
    def apply(
        self,
        tokens: TokenStore | ImageTokens | Float[Tensor, "*leading d"],
        *,
        dtype: torch.dtype = torch.float32,
        verify: bool = True,
        progress: bool | None = None,
    ) -> TokenStore | ImageTokens | Float[Tensor, "*leading r"]:
        """Reduce the features of tokens.

        Parameters
        ----------
        tokens
            A store gives another store, which is kept in the cache under the digests of both and
            continued after an interruption; tokens in memory give tokens in memory.
        dtype
            Of the result: ``torch.float32`` or ``torch.float16``. Sums are taken in float64 and
            rounded once.
        verify, progress
            As in :func:`token_store`, for the new store.

        Returns
        -------
        TokenStore, ImageTokens or Tensor
            Like ``tokens``, with ``to`` features, and the constant 1 after them if ``constant``.

        Raises
        ------
        ValueError
            If the features have another number, or the results do not fit ``dtype``.
        ChecksumError
            If a store has to be read and is damaged.
        OSError
            If the disk is too small or becomes full.
        """
        kind = numpy_dtype(dtype)
        if isinstance(tokens, TokenStore):
            return self._store(tokens, kind, verify, progress)
        if isinstance(tokens, ImageTokens):
            return replace(tokens, tokens=self.apply(tokens.tokens, dtype=dtype))
        if not isinstance(tokens, Tensor) or not tokens.is_floating_point():
            raise ValueError(
                f"tokens is of type {type(tokens).__name__}; it needs to be a TokenStore,"
                " ImageTokens, or a tensor of floats"
            )
        self._check(tokens.shape)
        return torch.from_numpy(cast(self._map(tokens.double().cpu()).numpy(), kind)).to(
            tokens.device
        )

    def _store(
        self, store: TokenStore, kind: np.dtype, verify: bool, progress: bool | None
    ) -> TokenStore:
        self._check(store.tokens.shape)
        n, s, _ = store.tokens.shape
        about = {
            "kind": "reduced",
            "shape": [n, s, self.matrix.shape[1] + self.constant],
            "dtype": kind.name,
            "backbone": store.backbone,
            "tokens": store.digest,
            "reduction": self.digest,
            "features": f"{self} of the {store.features}",
            "grid": list(store.grid),
            **described(store),
        }

        verified = False

        def compute(rows: slice, done) -> Float[np.ndarray, "m s r"]:
            nonlocal verified
            if not verified:  # what is kept must not come from damaged bytes
                store.verify()
                verified = True
            values = np.empty((rows.stop - rows.start, *about["shape"][1:]), kind)
            first = 0
            for some in batches(store.tokens[rows]):
                values[first : first + len(some)] = cast(self._map(some.double()).numpy(), kind)
                first += len(some)
                done(len(some))
            return values

        return write_store(
            about, compute, store.source, "reduced tokens", verify=verify, progress=progress
        )

    def _check(self, shape: tuple[int, ...]) -> None:
        d = len(self.centre)
        if not shape or shape[-1] != d:
            raise ValueError(f"tokens has shape {tuple(shape)}; its last size needs to be {d}")

    def _map(self, tokens: Float64[Tensor, "*leading d"]) -> Float64[Tensor, "*leading r"]:
        reduced = (tokens - self.centre) @ self.matrix
        if self.constant:
            reduced = torch.cat([reduced, torch.ones_like(reduced[..., :1])], dim=-1)
        return reduced

    def __str__(self) -> str:
        to = self.matrix.shape[1]
        text = {
            "pca": f"{to} principal components",
            "average": f"means of neighbours, {to} of them",
        }[self.how]
        text += ", scaled" if self.scaled else ""
        return text + (", and a constant" if self.constant else "")

    def __repr__(self) -> str:
        kept = "" if self.explained is None else f", {self.explained:.1%} of the variance"
        return f"<{self} of {len(self.centre)} features{kept}>"


def reduce_features(
    train: TokenStore | ImageTokens | Float[Tensor, "n s d"],
    *,
    to: int = 100,
    how: Literal["pca", "average"] = "pca",
    scale: bool = False,
    constant: bool = False,
    progress: bool | None = None,
) -> FeatureReduction:
    """Learn from training tokens how to reduce features, and return the map.

    The setting of Sahiner et al. (2022), Section 5, names 100 features and average pooling and
    leaves open what is averaged. Both readings are here:

    - ``how="average"``, the features are: feature i is the mean of the neighbours ⌊i·d/to⌋ …
      ⌈(i+1)·d/to⌉ − 1, as in :func:`torch.nn.functional.adaptive_avg_pool1d`. Nothing is learnt,
      unless ``scale``.
    - ``how="pca"``, the tokens are, by ``TokenStore.mean`` or a head that pools, and features are
      reduced by principal components: x ↦ (x − μ)V with the mean μ of all training tokens and the
      eigenvectors V of the ``to`` largest eigenvalues of their covariance, each with its largest
      entry positive.

    Parameters
    ----------
    train
        Tokens of the training split. A store is read once, a piece at a time, and sums are taken in
        float64.
    to
        How many features are left.
    how
        See above.
    scale
        Whether each new feature is divided by its root mean square over the training tokens, so that
        no unit of measurement counts. For principal components this is whitening. A mean of
        neighbours that is 0 in every token stays 0.
    constant
        Whether a feature that is always 1 is added: then there are ``to + 1``.
    progress
        Whether a bar is shown while a store is read; None follows the environment.

    Returns
    -------
    FeatureReduction
        ``.apply(tokens)`` maps stores, :class:`ImageTokens` and tensors.

    Raises
    ------
    ValueError
        If ``to`` is no number from 1 to d, there are no tokens or some are not finite, or with
        ``how="pca"`` and ``scale`` the tokens vary in fewer than ``to`` directions.
    ChecksumError
        If a store is damaged.
    """
    if not isinstance(train, TokenStore | ImageTokens | Tensor):
        raise ValueError(
            f"train is of type {type(train).__name__}; it needs to be a TokenStore, ImageTokens or a"
            " tensor"
        )
    tokens = train if isinstance(train, Tensor) else train.tokens
    if tokens.ndim != 3 or (isinstance(tokens, Tensor) and not tokens.is_floating_point()):
        raise ValueError(
            f"train has shape {tuple(tokens.shape)} and dtype {tokens.dtype}; it needs floats of"
            " shape (n, s, d)"
        )
    d = tokens.shape[2]
    if not isinstance(to, int) or isinstance(to, bool) or not 1 <= to <= d:
        raise ValueError(f"to is {to!r}; it needs to be an integer from 1 to {d}")
    if how not in ("pca", "average"):
        raise ValueError(f"how is {how!r}; it needs to be 'pca' or 'average'")
    for name, value in (("scale", scale), ("constant", constant)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; it needs to be True or False")
    if how == "average":
        matrix = _averages(d, to)
        if scale:
            _, mean, covariance = _moments(train, progress)
            second = covariance + torch.outer(mean, mean)
            size = ((second @ matrix) * matrix).sum(0).clamp(min=0).sqrt()
            matrix = matrix / torch.where(size > 0, size, 1.0)
        return FeatureReduction(how, torch.zeros(d).double(), matrix, scale, constant, None)
    _, mean, covariance = _moments(train, progress)
    with _one_thread():
        values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    rank = int((values > _RANK * values[0]).sum())
    if scale and rank < to:
        raise ValueError(
            f"train varies in {rank} directions only; scaled, to needs to be {rank} or less"
        )
    matrix = vectors[:, :to]
    matrix = matrix * matrix.gather(0, matrix.abs().argmax(0, keepdim=True)).sign()
    kept = float(values[:to].sum() / values.sum()) if rank else 1.0
    if scale:
        matrix = matrix / values[:to].sqrt()
    return FeatureReduction(how, mean, matrix, scale, constant, kept)


def _moments(
    train: TokenStore | ImageTokens | Float[Tensor, "n s d"], progress: bool | None
) -> tuple[int, Float64[Tensor, "d"], Float64[Tensor, "d d"]]:
    if isinstance(train, TokenStore):
        return moments_of(train, enabled=progress)
    return mean_and_covariance(batches(train if isinstance(train, Tensor) else train.tokens))


@contextmanager
def _one_thread() -> Iterator[None]:
    """The digits of eigenvectors do not depend on how many threads there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _averages(d: int, to: int) -> Float64[Tensor, "d to"]:
    matrix = torch.zeros(d, to, dtype=torch.float64)
    for i in range(to):
        first, last = i * d // to, -(-(i + 1) * d // to)
        matrix[first:last, i] = 1 / (last - first)
    return matrix
