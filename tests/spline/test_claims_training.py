"""ReLU attention trains about as well as softmax attention on handwritten digits (spl-17)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fourviews.attention import EncoderBlock, FeedForward, MultiHeadAttention

SEEDS = range(5)
TOKENS, FEATURES, WIDTH = 16, 4, 16  # an 8 × 8 image as sixteen patches of 2 × 2


class Classifier(nn.Module):
    """Patches with positions, one block of attention and network, mean, classes.

    ReLU attention is divided by the number of tokens, as in the experiments of Wortsman et al.
    """

    def __init__(self, activation: str):
        super().__init__()
        scale = (WIDTH // 2) ** -0.5 / (TOKENS if activation == "relu" else 1)
        attention = MultiHeadAttention(WIDTH, 2, activation=activation, scale=scale, bias=True)
        self.embedding = nn.Linear(FEATURES, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        self.block = EncoderBlock(attention, FeedForward(WIDTH, 2 * WIDTH), norm="pre")
        self.classes = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classes(self.block(self.embedding(x) + self.positions).mean(-2))


@pytest.fixture(scope="module")
def digits():
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 4, 2, 4, 2) / 16
    x = x.transpose(2, 3).reshape(-1, TOKENS, FEATURES)
    return x, torch.tensor(labels)


def accuracy(activation: str, seed: int, digits, steps: int = 250) -> float:
    x, y = digits
    torch.manual_seed(seed)
    order = torch.randperm(len(x))
    train, test = order[:1200], order[1200:]
    model = Classifier(activation)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        batch = train[torch.randint(len(train), (64,))]
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        return float((model(x[test]).argmax(-1) == y[test]).float().mean())


@pytest.mark.claim("spl-17", verdict="empirical")
def test_spl_17_relu_attention_trains_about_as_well(digits):
    """Over five seeds its mean accuracy is at most two points below, both far above chance."""
    found = {
        activation: torch.tensor([accuracy(activation, seed, digits) for seed in SEEDS])
        for activation in ("relu", "softmax")
    }
    assert min(float(values.min()) for values in found.values()) > 0.8
    difference = found["relu"] - found["softmax"]
    assert float(difference.mean()) > -0.02, (found, difference)


@pytest.mark.mutation("spl-17")
def test_spl_17_a_model_that_trains_badly_is_noticed(digits):
    assert accuracy("relu", 0, digits, steps=10) < 0.8
