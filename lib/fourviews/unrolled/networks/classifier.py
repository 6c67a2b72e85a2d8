r"""Texts to classes: an unrolled Transformer, the mean of its tokens, and one linear map."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fourviews.display import progress

from ..inputs import check_integer, check_number
from .threads import few_threads
from .transformer import UnrolledTransformer

__all__ = ["TextClassifier", "fit_readout", "train_online"]


class TextClassifier(nn.Module):
    r"""Logits :math:`\bar y V + b`, with :math:`\bar y` the mean of the model's output tokens.

    With a model of no layers this is a bag of embeddings: logistic regression on the mean vector.
    A text without tokens has the mean 0, so that only b speaks.

    Parameters
    ----------
    model
        What the tokens go through.
    d, classes
        Features of a token, and number of classes.  V and b start at 0: all logits are equal.
    """

    def __init__(self, model: UnrolledTransformer, d: int, classes: int = 2) -> None:
        super().__init__()
        d, classes = check_integer(d, "d", 1), check_integer(classes, "classes", 1)
        if isinstance(model, UnrolledTransformer) and model.d != d:
            raise ValueError(f"d is {d}; model has {model.d} features")
        self.model = model
        dtype = next((p.dtype for p in model.parameters()), None)
        self.readout = nn.Linear(d, classes, dtype=dtype)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "classes"]:
        """Logits of one text."""
        return self.readout(self.mean(X))

    def mean(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "d"]:
        """Mean token after all layers."""
        return self.model(X).sum(-2) / max(X.shape[-2], 1)

    def logits(self, texts: Sequence[Float[Tensor, "_ d"]]) -> Float[Tensor, "m classes"]:
        """Logits of several texts, without gradients.

        Raises
        ------
        ValueError
            If there is no text.
        """
        if not len(texts):
            raise ValueError("texts is empty; it needs at least one text")
        with torch.no_grad(), few_threads(texts):
            return torch.stack([self(X) for X in texts])

    def accuracy(self, texts: Sequence[Float[Tensor, "_ d"]], labels: Int64[Tensor, "m"]) -> float:
        """Share of the texts whose largest logit is that of the label.

        Parameters
        ----------
        texts
            One matrix of word vectors a text.
        labels
            The class of each text.

        Raises
        ------
        ValueError
            If there is no text, or not one label a text, each the number of a class.
        """
        _check(texts, labels, self)
        return float((self.logits(texts).argmax(-1) == labels).double().mean())


def train_online(
    classifier: TextClassifier,
    texts: Sequence[Float[Tensor, "_ d"]],
    labels: Int64[Tensor, "m"],
    *,
    steps: int,
    lr: float = 0.01,
    seed: int = 0,
) -> Float[Tensor, "steps"]:
    r"""Stochastic gradient descent on the cross-entropy, one text a step.

    Texts come in a random order; each order is used up before the next is drawn.  Short texts are
    computed by one thread: their matrices are too small to share.

    Parameters
    ----------
    classifier
        Changed in place.
    texts, labels
        Tokens ``(n, d)`` and a class of each text.
    steps, lr, seed
        Number and length of steps, and the seed of the order.

    Returns
    -------
    Float[Tensor, "steps"]
        The loss of each step's text before the step.

    Raises
    ------
    ValueError
        If there is no text, not one label a text, ``steps`` is negative or ``lr`` not positive; and
        if the loss becomes infinite or NaN, with the step's number.
    """
    _check(texts, labels, classifier)
    steps = check_integer(steps, "steps", 0)
    check_number(lr, "lr", 0.0, open=True)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(classifier.parameters(), lr=lr)
    losses, order = torch.zeros(steps), []
    with few_threads(texts):
        for step in progress(range(steps), total=steps, label="training"):
            if not order:
                order = torch.randperm(len(texts), generator=generator).tolist()
            row = order.pop()
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(classifier(texts[row]), labels[row])
            if not bool(torch.isfinite(loss)):
                raise ValueError(f"the loss is {loss.item()} at step {step}; lr {lr} is too large")
            loss.backward()
            optimiser.step()
            losses[step] = loss.detach()
    return losses


def fit_readout(
    classifier: TextClassifier,
    texts: Sequence[Float[Tensor, "_ d"]],
    labels: Int64[Tensor, "m"],
    *,
    decay: float = 1e-3,
    steps: int = 200,
) -> float:
    r"""Solve for the linear map behind a model that stays as it is, and return the objective.

    .. math:: \min_{V, b}\ \frac1m\sum_k \operatorname{CE}(\bar y_k V + b,\, t_k)
              + \tfrac{\text{decay}}2\|V\|_F^2 ,

    a convex problem, by L-BFGS.  With no layers it is the bag of embeddings at its best, which
    stochastic steps only approach.

    Parameters
    ----------
    classifier
        Its readout is changed in place.
    texts, labels
        Tokens ``(n, d)`` and a class of each of the m texts.
    decay, steps
        Weight decay of V; most iterations.

    Returns
    -------
    float
        The objective at the end.

    Raises
    ------
    ValueError
        If there is no text, not one label a text, each the number of a class, ``decay`` is not
        positive, or a text's mean token is not finite.
    """
    _check(texts, labels, classifier)
    check_number(decay, "decay", 0.0, open=True)
    readout = classifier.readout
    with torch.no_grad(), few_threads(texts):
        means = torch.stack([classifier.mean(X) for X in texts])
    if not bool(means.isfinite().all()):
        raise ValueError("texts has tokens that end at NaN or infinity; they need to stay finite")
    optimiser = torch.optim.LBFGS(
        readout.parameters(), max_iter=steps, line_search_fn="strong_wolfe", tolerance_grad=1e-7
    )

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(readout(means), labels)
        loss = loss + 0.5 * decay * readout.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(objective)
    return float(objective().detach())


def _check(texts: Sequence[Tensor], labels: Tensor, classifier: TextClassifier) -> None:
    if not len(texts):
        raise ValueError("texts is empty; it needs at least one text")
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        got = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels is {got}; it needs to be an int64 tensor")
    if labels.shape != (len(texts),):
        raise ValueError(f"labels has shape {tuple(labels.shape)}; there are {len(texts)} texts")
    classes = classifier.readout.out_features
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(
            f"labels runs from {int(labels.min())} to {int(labels.max())}; there are {classes}"
            " classes"
        )
