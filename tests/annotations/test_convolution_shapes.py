"""The annotated shapes of the convolution view hold, checked at each call in a process of its own."""

from __future__ import annotations

import subprocess
import sys

HOOK = """
from jaxtyping import install_import_hook
install_import_hook("fourviews.convolution", "beartype.beartype")
import itertools
import torch
from torch import nn
from fourviews import convolution
"""

CALLS = """
generator = torch.Generator().manual_seed(0)
for (dtype, head_dim, alpha), dims, mode in itertools.product(
    ((torch.float32, None, 2.0), (torch.float64, 1, float("inf"))), (1, 2),
    ("zeros", "circular", "reflect", "replicate"),
):
    kind = (nn.Conv1d, nn.Conv2d)[dims - 1]
    conv = kind(2, 4, 3, padding=1, groups=2, padding_mode=mode, dtype=dtype)
    layer = convolution.attention_from_conv(conv, alpha=alpha, head_dim=head_dim)
    grid = (5, 4)[:dims]
    x = torch.randn(2, 2, *grid, dtype=dtype, generator=generator)
    layer(x), layer(x, path="dense"), layer(x[0]), layer.scores(x), layer.attention_maps(x)
    layer.key_weights(grid), layer.pixel_weights(grid), layer.meant_pixels(grid), layer.v(grid)
    for method in ("joint", "heads", None):
        layer.error_bound((-1.0, 1.0), grid, method=method)
    layer.worst_case_input((-1.0, 1.0), grid)
conv = nn.Conv2d(3, 3, 2)
convolution.attention_from_conv(conv, head_dim=2, outputs=(0, 2), channels="last")
convolution.heads_needed(torch.randn(4, 3, 3), 2)
x, p, w = torch.randn(2, 4, 3), torch.randn(4, 3), torch.randn(3, 5)
convolution.absolute_scores(x, p, w, w)
encoding = convolution.quadratic_encoding(torch.randn(4, 4, 2))
v = torch.randn(5)
convolution.relative_scores(x, x, encoding, w, w, torch.randn(3, 5), v, v)
convolution.offset_query(torch.randn(9, 2), 2.0), convolution.leak_bound(2.0)
images = torch.randn(2, 3, 8, 8)
for encoding in ("quadratic", "quadratic_full", "learned", "learned_content"):
    network = convolution.AttentionNetwork(
        encoding, grid=(8, 8), layers=1, heads=2, hidden=6, intermediate=6, head_dim=3, d_key=4
    )
    network(images), network.attention_maps(images), convolution.cost(network, images)
    network.attentions[0].head_importance(), network.attentions[0].prune_heads([1])
convolution.ResNet(width=2, blocks=(1,))(images)
convolution.imitate(nn.Conv2d(2, 2, 3, padding=1), steps=2).pixels()
pixels, labels = torch.zeros(4, 8, 8, 3, dtype=torch.uint8), torch.tensor([0, 1, 2, 3])
convolution.train(
    network, pixels, labels, pixels, labels, convolution.Recipe(epochs=1), progress=False
).prepared(pixels)
"""

WRONG = """
convolution.offset_query(torch.ones(2, dtype=torch.int64), 1.0)
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HOOK + script], capture_output=True, text=True, timeout=300
    )


def test_shapes_of_the_convolution_view_are_as_annotated() -> None:
    result = run(CALLS)
    assert result.returncode == 0, result.stderr[-2000:]


def test_a_wrong_dtype_is_noticed() -> None:
    result = run(WRONG)
    assert result.returncode != 0 and "TypeCheckError" in result.stderr
