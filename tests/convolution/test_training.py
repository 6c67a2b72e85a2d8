"""Training: repeatable, in pieces, checked against its checkpoint; one call a run."""

from __future__ import annotations

import io
import math
import os
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fourviews.convolution import (
    AttentionNetwork,
    Recipe,
    cosine_with_warm_up,
    run_cifar10,
    train,
)
from fourviews.convolution.training import _augmented, _statistics
from fourviews.data import DataNotFoundError
from fourviews.data.files import sealed

RECIPE = Recipe(epochs=4, batch_size=8, learning_rate=0.05, clip=1.0)


def data(seed: int = 0, n: int = 40) -> tuple[Tensor, Tensor]:
    """Two classes: bright above, or bright below."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 100, (n, 8, 8, 3), generator=generator, dtype=torch.uint8)
    labels = torch.arange(n) % 2
    images[labels == 0, :4] += 100
    images[labels == 1, 4:] += 100
    return images, labels


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(192, 8),
        nn.LayerNorm(8),
        nn.Dropout(0.3),
        nn.ReLU(),
        nn.Linear(8, 2),
    )


def run(recipe: Recipe = RECIPE, seed: int = 0, **options):
    return train(network(seed), *data(0), *data(1), recipe, progress=False, device="cpu", **options)


def test_it_learns_and_says_so() -> None:
    found = run()
    assert found.finished and found.precision == "float32"
    assert [h["epoch"] for h in found.history] == [0, 1, 2, 3]
    assert found.history[-1]["loss"] < found.history[0]["loss"]
    assert found.accuracy == found.history[-1]["test_accuracy"] > 0.9
    assert not found.network.training


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_pieces_give_what_one_run_gives(tmp_path, optimizer) -> None:
    recipe = replace(RECIPE, optimizer=optimizer)
    whole = run(recipe)
    file = tmp_path / "run.pt"
    for epoch in range(4):
        # Other random numbers in between, and first weights that the checkpoint replaces.
        torch.manual_seed(100 + epoch)
        torch.rand(3)
        part = run(recipe, seed=0 if epoch == 0 else 50 + epoch, checkpoint=file, seconds=0.0)
        assert len(part.history) == epoch + 1 and part.finished == (epoch == 3)
    for a, b in zip(whole.network.parameters(), part.network.parameters(), strict=True):
        assert torch.equal(a, b)
    drop = lambda history: [{**h, "seconds": 0} for h in history]  # noqa: E731
    assert drop(whole.history) == drop(part.history)
    again = run(recipe, seed=9, checkpoint=file)  # finished: nothing is done
    assert again.history == part.history


def test_seeds() -> None:
    first, second = run(), run()
    other = run(replace(RECIPE, seed=1))
    losses = [[h["loss"] for h in r.history] for r in (first, second, other)]
    assert losses[0] == losses[1] != losses[2]
    made = network()
    before = torch.random.get_rng_state()
    train(made, *data(0), *data(1), replace(RECIPE, epochs=1), progress=False)
    assert torch.equal(before, torch.random.get_rng_state())


def test_lower_precision() -> None:
    """Products in bfloat16, weights and optimizer in float32."""
    found = run(precision="bfloat16")
    assert found.precision == "bfloat16" and found.accuracy > 0.9
    assert {p.dtype for p in found.network.parameters()} == {torch.float32}
    assert found.history[0]["loss"] != run().history[0]["loss"]
    with pytest.raises(ValueError, match="precision is"):
        run(precision="int8")


def test_checkpoints_of_something_else_are_refused(tmp_path) -> None:
    file = tmp_path / "run.pt"
    run(checkpoint=file, seconds=0.0)
    assert [f.name for f in tmp_path.iterdir()] == ["run.pt"]
    with pytest.raises(ValueError, match="another recipe"):
        run(replace(RECIPE, learning_rate=0.01), checkpoint=file)
    with pytest.raises(ValueError, match="another data"):
        train(network(), *data(7), *data(1), RECIPE, checkpoint=file, progress=False)
    with pytest.raises(ValueError, match="another network"):
        smaller = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
        train(smaller, *data(0), *data(1), RECIPE, checkpoint=file, progress=False)


def test_damaged_checkpoints_are_refused_and_left_alone(tmp_path) -> None:
    file = tmp_path / "run.pt"
    run(checkpoint=file, seconds=0.0)
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for content in (b"", b"no", whole[:-200], whole[:middle], b"\0" * len(whole), flipped):
        file.write_bytes(content)
        with pytest.raises(
            ValueError, match="run.pt. cannot be read .*: it is damaged or no checkp"
        ):
            run(checkpoint=file)
        assert file.read_bytes() == content
    for other in ([1, 2], {"identity": {}}, {"identity": None}):
        content = io.BytesIO()
        torch.save(other, content)
        sealed.write(file, content.getvalue())
        with pytest.raises(ValueError, match="it is damaged or no checkpoint; give another file"):
            run(checkpoint=file)
    with pytest.raises(ValueError, match="is a folder; it needs to be a file"):
        run(checkpoint=tmp_path)


def test_a_disk_that_becomes_full_is_told_and_the_last_checkpoint_stays(
    tmp_path, monkeypatch
) -> None:
    """What torch would make an error about positions in a file."""
    file = tmp_path / "run.pt"
    run(checkpoint=file, seconds=0.0)
    before = file.read_bytes()

    class Full(io.FileIO):
        def write(self, content):
            if memoryview(content).nbytes > 1000:
                raise OSError(28, "No space left on device")
            return super().write(content)

    monkeypatch.setattr(os, "fdopen", Full)
    with pytest.raises(OSError, match=f"no room for {file} .No space left") as caught:
        run(checkpoint=file)
    assert caught.value.errno == 28
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


def test_an_interrupted_epoch_leaves_the_last_checkpoint(tmp_path) -> None:
    file = tmp_path / "run.pt"
    run(checkpoint=file, seconds=0.0)
    content = file.read_bytes()
    broken = network()
    broken.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(broken, *data(0), *data(1), RECIPE, checkpoint=file, progress=False)
    assert file.read_bytes() == content


def test_a_loss_that_is_not_finite_stops(tmp_path) -> None:
    class Infinite(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :2] * self.weight * math.inf

    with pytest.raises(FloatingPointError, match="learning_rate"):
        train(Infinite(), *data(0), *data(1), RECIPE, progress=False, checkpoint=tmp_path / "x.pt")
    assert not (tmp_path / "x.pt").exists()


def test_schedule() -> None:
    rates = [cosine_with_warm_up(t, 100, 0.1) for t in range(100)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == 1.0 and rates.index(1.0) == 9
    assert all(a < b for a, b in zip(rates[:9], rates[1:10], strict=True))
    assert all(a >= b for a, b in zip(rates[10:-1], rates[11:], strict=True))
    assert rates[55] == pytest.approx(0.5) and rates[-1] < 1e-3
    assert cosine_with_warm_up(0, 10, 0.0) == 1.0
    assert cosine_with_warm_up(0, 3, 0.05) == 1.0  # a warm-up of less than one step


def test_statistics() -> None:
    images, _ = data()
    mean, std = _statistics(images)
    assert torch.allclose(mean.flatten(), images.double().mean((0, 1, 2)).float(), rtol=1e-6)
    wanted = images.double().std((0, 1, 2), correction=0).float()
    assert torch.allclose(std.flatten(), wanted, rtol=1e-6)
    assert float(_statistics(torch.zeros(1, 2, 2, 3, dtype=torch.uint8))[1].min()) == 1.0


def test_augmentation_shifts_and_mirrors() -> None:
    image = torch.arange(1, 65, dtype=torch.uint8).view(1, 8, 8, 1)
    many = _augmented(image.expand(500, 8, 8, 1), torch.Generator().manual_seed(0), reach=1)
    padded = nn.functional.pad(image[0, :, :, 0].int(), (1, 1, 1, 1))
    possible = {
        tuple(cut.flatten().tolist())
        for i in range(3)
        for j in range(3)
        for cut in (padded[i : i + 8, j : j + 8], padded.flip(1)[i : i + 8, j : j + 8])
    }
    seen = {tuple(one.flatten().tolist()) for one in many.int()}
    assert seen == possible


def test_changes_that_a_recipe_does_not_have(monkeypatch) -> None:
    monkeypatch.setattr(
        "fourviews.convolution.experiment.cifar10", None
    )  # before data are looked for
    known = (
        "run_cifar10 has no option lr, colour; of the recipe there are epochs, batch_size, learning"
    )
    with pytest.raises(TypeError, match=known):
        run_cifar10(lr=0.1, epochs=1, colour="red")


def test_clear_errors() -> None:
    for changes in (
        {"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"warm_up": 1.0},
        {"optimizer": "lion"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=next(iter(changes))):
            Recipe(**changes)
    images, labels = data()
    with pytest.raises(ValueError, match="train_images is torch.float32"):
        train(network(), images.float(), labels, images, labels, RECIPE)
    with pytest.raises(ValueError, match="test_images has 40 images, test_labels 39"):
        train(network(), images, labels, images, labels[1:], RECIPE)
    with pytest.raises(ValueError, match="model is"):
        run_cifar10("cnn")
    with pytest.raises(ValueError, match="preset is"):
        run_cifar10(preset="huge")


@pytest.mark.parametrize(
    "model", ["quadratic", "quadratic_full", "learned", "learned_content", "resnet"]
)
def test_the_page_preset_is_one_call(model, tmp_path) -> None:
    """Stopped after an epoch, taken up, and finished: as the full preset is run."""
    first = run_cifar10(model, folder=tmp_path, seconds=0.0, progress=False)
    assert not first.run.finished
    result = run_cifar10(model, folder=tmp_path, progress=False)
    assert result.run.finished and len(result.run.history) == 4
    assert result.run.history[0] == first.run.history[0]
    assert result.run.history[-1]["loss"] < result.run.history[0]["loss"]
    assert result.cost.parameters > 0 and result.cost.flops > 0 and result.source
    assert [f.name for f in tmp_path.iterdir()] == [f"page-{model}-0.pt"]


def test_the_source_of_the_images_can_be_insisted_on(monkeypatch, tmp_path) -> None:
    result = run_cifar10("resnet", epochs=1, source="package", progress=False)
    assert "digits" in result.source
    monkeypatch.setenv("FOURVIEWS_DATA", str(tmp_path))
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path))
    monkeypatch.setenv("FOURVIEWS_OFFLINE", "1")
    with pytest.raises(DataNotFoundError):
        run_cifar10("resnet", "full", source="official", progress=False)


def test_places_have_a_rate_of_their_own() -> None:
    """Adam's first step is as long as the rate, whatever the gradient."""
    recipe = Recipe(
        epochs=1, batch_size=20, learning_rate=1e-4, optimizer="adamw", warm_up=0.0,
        weight_decay=0.0, place_rate=30.0, augment=False,
    )  # fmt: skip
    images = torch.randint(0, 256, (20, 8, 8, 3), dtype=torch.uint8)
    labels = torch.arange(20) % 2
    torch.manual_seed(0)
    network = AttentionNetwork(
        classes=2, grid=(8, 8), layers=1, heads=2, hidden=4, intermediate=4, dropout=0.0
    )
    before = [p.detach().clone() for p in (network.attentions[0].centres, network.embed.weight)]
    train(network, images, labels, images, labels, recipe, progress=False)
    after = (network.attentions[0].centres, network.embed.weight)
    steps = [float((a - b).abs().max().detach()) for a, b in zip(after, before, strict=True)]
    assert steps == pytest.approx([3e-3, 1e-4], rel=0.02)
    with pytest.raises(ValueError, match="place_rate is 0"):
        Recipe(place_rate=0.0)
