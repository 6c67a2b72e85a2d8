"""The look of figures, measured where it can be measured."""

import itertools

import numpy as np
import pytest
import torch

from fourviews.display import COLOURS, attention_map, use_style

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def plt():
    import matplotlib.pyplot as plt

    with matplotlib.rc_context():
        use_style()
        yield plt
        plt.close("all")


def linear_rgb(colour):
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
PROTANOPIA = np.array(
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)


def lab(rgb):
    xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.072175],
            [0.0193339, 0.119192, 0.9503041],
        ]
    ) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / np.array([0.95047, 1.0, 1.08883]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", [np.eye(3), PROTANOPIA, DEUTERANOPIA])
def test_first_colours_can_be_told_apart(vision):
    first = list(COLOURS.values())[:5]
    for a, b in itertools.combinations(first, 2):
        assert np.linalg.norm(lab(vision @ linear_rgb(a)) - lab(vision @ linear_rgb(b))) > 10, (
            a,
            b,
        )


def test_background_is_opaque_white(plt, tmp_path):
    plt.figure().savefig(tmp_path / "figure.png")
    pixels = plt.imread(tmp_path / "figure.png")
    assert (pixels == 1.0).all()  # all four channels, the last being opacity


def test_text_is_readable_on_a_narrow_page(plt):
    width, _ = plt.rcParams["figure.figsize"]
    for name in (
        "font.size",
        "axes.labelsize",
        "xtick.labelsize",
        "ytick.labelsize",
        "legend.fontsize",
    ):
        assert plt.rcParams[name] / 72 / width * 360 >= 9, name  # pixels of a 360 pixel wide page


@pytest.mark.parametrize("sign", [1, -1])
def test_white_means_no_weight(plt, sign):
    weights = torch.tensor([[0.0, 0.5 * sign], [1.0, 0.0]])
    image = attention_map(weights, ["a", "b"])
    colours = image.to_rgba(weights.numpy())
    np.testing.assert_allclose(colours[[0, 1], [0, 1]], 1.0, atol=0.01)
    assert np.abs(colours[1, 0] - 1).max() > 0.5
    negative = colours[0, 1]
    assert (negative[0] > negative[2]) == (sign < 0)  # red for negative, blue for positive
    axes = image.axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["a", "b"]


def test_zero_map_and_cross_attention_labels(plt):
    image = attention_map(np.zeros((2, 3)), ["a", "b"], ["x", "y", "z"], colorbar=False)
    assert [t.get_text() for t in image.axes.get_xticklabels()] == ["x", "y", "z"]
    assert [t.get_text() for t in image.axes.get_yticklabels()] == ["a", "b"]


@pytest.mark.parametrize(
    "weights, message", [(np.zeros((2, 3)), "shape"), (np.full((2, 2), np.nan), "NaN")]
)
def test_bad_maps_are_named(plt, weights, message):
    with pytest.raises(ValueError, match=message):
        attention_map(weights, ["a", "b"])
