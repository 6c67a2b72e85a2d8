"""Training of image classifiers: repeatable, in pieces, on a GPU in mixed precision."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from ..data.files import sealed
from ..data.files.checksums import ChecksumError
from ..display.progress import progress as progress_bar

__all__ = ["Recipe", "TrainingRun", "cosine_with_warm_up", "train"]

_Optimizer = Literal["sgd", "adamw"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Attributes
    ----------
    epochs, batch_size
        Passes over the data; images a step.
    learning_rate, warm_up
        Highest rate, and the part of all steps in which it rises to it.
    optimizer, momentum, weight_decay
        ``"sgd"`` with momentum, or ``"adamw"``.
    place_rate
        Learning rate of what says where heads look (centres, spreads, encodings of distances), as a
        multiple of that of the others. Adam moves a number by about its rate a step, so that a
        centre needs a large one to cross a pixel in a short training.
    augment
        Shift images by up to 4 pixels and mirror them, at random.
    clip
        Largest norm of the gradient; None leaves it alone.
    seed
        Of the order of the images, the augmentation and dropout.

    Raises
    ------
    ValueError
        If a number is out of its range, or the optimizer is unknown.
    """

    epochs: int = 300
    batch_size: int = 100
    learning_rate: float = 0.1
    warm_up: float = 0.05
    optimizer: _Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    place_rate: float = 1.0
    augment: bool = True
    clip: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value}; it needs to be a whole number, 1 or more")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}; it needs to lie in [0, 1)")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay is {self.weight_decay}; it needs to be 0 or more")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip is {self.clip}; it needs to be positive, or None")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate is {self.learning_rate}; it needs to be positive")
        if not 0 < self.place_rate < math.inf:
            raise ValueError(f"place_rate is {self.place_rate}; it needs to be positive")
        if not 0 <= self.warm_up < 1:
            raise ValueError(f"warm_up is {self.warm_up}; it needs to lie in [0, 1)")
        if self.optimizer not in get_args(_Optimizer):
            raise ValueError(
                f"optimizer is {self.optimizer!r}; it needs to be one of {get_args(_Optimizer)}"
            )


def cosine_with_warm_up(step: int, steps: int, warm_up: float) -> float:
    r"""Factor of the learning rate: a line up from 0, then half a cosine down to 0.

    With w = warm_up · steps, :math:`(t + 1)/w` for t < w, else
    :math:`\tfrac12\left(1 + \cos\pi\frac{t - w}{T - w}\right)`, at most 1.

    Parameters
    ----------
    step, steps
        t and T, 0 ≤ t ≤ T.
    warm_up
        Part of the steps that rises, in [0, 1).

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a number is out of its range.
    """
    if not 0 <= step <= steps or steps < 1 or not 0 <= warm_up < 1:
        raise ValueError(
            f"step is {step}, steps is {steps}, warm_up is {warm_up}; it needs 0 ≤ step ≤ steps,"
            " 1 ≤ steps and 0 ≤ warm_up < 1"
        )
    rising = warm_up * steps
    if step < rising:
        return min(1.0, (step + 1) / rising)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


@dataclass(frozen=True)
class TrainingRun:
    """A trained network, or one in the middle of its training.

    Attributes
    ----------
    network
        As it is after the last epoch, in evaluation mode.
    history
        One dictionary an epoch: ``epoch``, ``loss``, ``train_accuracy``, ``test_accuracy``,
        ``learning_rate`` (at its end) and ``seconds``.
    finished
        Whether all epochs are done.
    precision
        Of the matrix products: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
    mean, std
        Of each channel of the training images.
    """

    network: nn.Module
    history: tuple[dict[str, int | float], ...]
    finished: bool
    precision: str
    mean: Float[Tensor, "c 1 1"]
    std: Float[Tensor, "c 1 1"]

    @property
    def accuracy(self) -> float:
        """On the test images, after the last epoch; NaN before the first."""
        return self.history[-1]["test_accuracy"] if self.history else math.nan

    def prepared(self, images: UInt8[Tensor, "n h w c"]) -> Float[Tensor, "n c h w"]:
        """Images as the network takes them, on the images' device, the CPU as a rule."""
        return _prepared(images, self.mean.to(images.device), self.std.to(images.device))


def train(
    network: nn.Module,
    train_images: UInt8[Tensor, "n h w c"],
    train_labels: Int[Tensor, "n"],
    test_images: UInt8[Tensor, "m h w c"],
    test_labels: Int[Tensor, "m"],
    recipe: Recipe,
    *,
    checkpoint: Path | str | None = None,
    seconds: float | None = None,
    device: torch.device | str | None = None,
    precision: Precision = "auto",
    progress: bool | None = None,
) -> TrainingRun:
    """Train a classifier, or go on with it.

    Everything random depends on the recipe's seed and the number of the epoch alone, so that
    training in pieces gives what training at once gives (bit for bit on a CPU).  On a GPU, products
    are taken in bfloat16, or in float16 with a scaled loss where there is no bfloat16.

    Parameters
    ----------
    network
        Maps ``(n, c, h, w)`` floats to class scores. It is trained in place.
    train_images, train_labels, test_images, test_labels
        As :func:`fourviews.data.cifar10` returns them. Each channel is brought to mean 0 and
        variance 1 of the training images.
    recipe
        How to train.
    checkpoint
        File that is replaced after each epoch, all at once, and read first if it is there.
    seconds
        Stop after the epoch in which this time is over. Call again to go on.
    device
        The GPU if there is one, if left out.
    precision
        Of matrix products: ``"auto"`` as said above, ``"float32"`` or ``"bfloat16"`` anywhere.
    progress
        As in :func:`fourviews.display.progress`.

    Returns
    -------
    TrainingRun

    Raises
    ------
    ValueError
        If images, labels and scores do not fit, the precision is unknown, or the checkpoint cannot
        be read, or is of another network, recipe or data.
    OSError
        If the checkpoint cannot be written; the one before stays.
    FloatingPointError
        If the loss is not finite; the checkpoint keeps the epoch before.
    """
    _check_data(train_images, train_labels, test_images, test_labels)
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    network.to(device)
    if precision not in get_args(Precision):
        raise ValueError(f"precision is {precision!r}; it needs to be one of {get_args(Precision)}")
    if precision == "auto":
        half = _half_precision(device)
    else:
        half = torch.bfloat16 if precision == "bfloat16" else None
    steps_an_epoch = -(-len(train_images) // recipe.batch_size)
    total = recipe.epochs * steps_an_epoch
    optimizer = _optimizer(network, recipe)
    scaler = torch.amp.GradScaler(device.type, enabled=half == torch.float16)
    data = (train_images, train_labels, test_images, test_labels)
    identity = _identity(network, recipe, data)
    history: list[dict[str, int | float]] = []
    # Absolute: the program may go to another folder before it is written.
    checkpoint = None if checkpoint is None else Path(checkpoint).absolute()
    if checkpoint is not None and checkpoint.is_dir():
        raise ValueError(f"checkpoint {str(checkpoint)!r} is a folder; it needs to be a file")
    if checkpoint is not None and checkpoint.is_file():
        history = _restore(checkpoint, identity, network, optimizer, scaler, device)
    mean, std = _statistics(train_images)
    mean, std = mean.to(device), std.to(device)
    train_images, test_images = train_images.to(device), test_images.to(device)
    train_labels, test_labels = train_labels.to(device), test_labels.to(device)

    def autocast():
        on = half is not None
        return torch.autocast(device.type, half) if on else contextlib.nullcontext()

    def prepared(images: Tensor) -> Tensor:
        return _prepared(images, mean, std)

    started = time.perf_counter()
    devices = [device] if device.type == "cuda" else []
    epochs = range(len(history), recipe.epochs)
    with progress_bar(total=len(epochs), label="epochs", enabled=progress) as bar:
        for epoch in epochs:
            begun = time.perf_counter()
            network.train()
            with torch.random.fork_rng(devices):  # dropout; the caller's random numbers stay
                torch.manual_seed(_seed(recipe.seed, epoch, "dropout"))
                generator = torch.Generator().manual_seed(_seed(recipe.seed, epoch, "order"))
                order = torch.randperm(len(train_images), generator=generator)
                loss_sum = torch.zeros((), device=device)
                right = torch.zeros((), device=device)
                for number, rows in enumerate(order.split(recipe.batch_size)):
                    step = epoch * steps_an_epoch + number
                    rate = recipe.learning_rate * cosine_with_warm_up(step, total, recipe.warm_up)
                    for group in optimizer.param_groups:
                        group["lr"] = rate * group["multiple"]
                    x, y = train_images[rows.to(device)], train_labels[rows.to(device)]
                    x = _augmented(x, generator) if recipe.augment else x
                    with autocast():
                        scores = network(prepared(x))
                        if not number and epoch == epochs[0]:
                            _check_classes(scores, train_labels, test_labels)
                        loss = nn.functional.cross_entropy(scores.float(), y)
                    optimizer.zero_grad(set_to_none=True)
                    scaler.scale(loss).backward()
                    if recipe.clip is not None:
                        scaler.unscale_(optimizer)
                        nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
                    scaler.step(optimizer)
                    scaler.update()
                    loss_sum += loss.detach() * len(y)
                    right += (scores.argmax(-1) == y).sum()
            network.eval()
            mean_loss = float(loss_sum) / len(train_images)
            if not math.isfinite(mean_loss):
                raise FloatingPointError(
                    f"the loss is {mean_loss} in epoch {epoch}; a smaller learning_rate may help"
                )
            with torch.no_grad(), autocast():
                hits = sum(
                    int((network(prepared(x)).argmax(-1) == y).sum())
                    for x, y in zip(
                        test_images.split(recipe.batch_size),
                        test_labels.split(recipe.batch_size),
                        strict=True,
                    )
                )
            history.append(
                {
                    "epoch": epoch,
                    "loss": mean_loss,
                    "train_accuracy": float(right) / len(train_images),
                    "test_accuracy": hits / len(test_images),
                    "learning_rate": rate,
                    "seconds": time.perf_counter() - begun,
                }
            )
            if checkpoint is not None:
                _save(checkpoint, identity, network, optimizer, scaler, history)
            bar.update(1)
            bar.set_postfix_str(f"test {history[-1]['test_accuracy']:.3f}")
            if seconds is not None and time.perf_counter() - started >= seconds:
                break
    network.eval()
    return TrainingRun(
        network,
        tuple(history),
        len(history) == recipe.epochs,
        "float32" if half is None else str(half).removeprefix("torch."),
        mean.cpu(),
        std.cpu(),
    )


# --- data ---------------------------------------------------------------------------------


def _check_data(images: Tensor, labels: Tensor, test_images: Tensor, test_labels: Tensor) -> None:
    for name, x, y in (("train", images, labels), ("test", test_images, test_labels)):
        if x.dtype != torch.uint8 or x.ndim != 4:
            raise ValueError(
                f"{name}_images is {x.dtype} of shape {tuple(x.shape)}; it needs to be uint8,"
                " (n, h, w, c)"
            )
        if y.ndim != 1 or y.is_floating_point() or (y < 0).any():
            raise ValueError(
                f"{name}_labels is {y.dtype} of shape {tuple(y.shape)}; it needs to be integers from"
                " 0, (n,)"
            )
        if len(x) != len(y) or not len(x):
            raise ValueError(
                f"{name}_images has {len(x)} images, {name}_labels {len(y)} labels; they need the"
                " same number, at least 1"
            )
    if images.shape[1:] != test_images.shape[1:]:
        raise ValueError(
            f"test_images is of shape {tuple(test_images.shape)}; it needs the sides and channels of"
            f" train_images, {tuple(images.shape[1:])}"
        )


def _statistics(images: Tensor) -> tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]:
    """Mean and standard deviation of each channel, from a histogram: exact for any number."""
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack(
        [torch.bincount(channel.flatten(), minlength=256) for channel in images.cpu().unbind(-1)]
    ).double()
    weights = counts / counts.sum(-1, keepdim=True)
    mean = weights @ values
    variance = (weights * (values - mean[:, None]).square()).sum(-1)
    std = variance.sqrt().clamp(min=1.0)  # a channel of one colour
    return mean.float().view(-1, 1, 1), std.float().view(-1, 1, 1)


def _prepared(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (images.movedim(-1, 1).float() - mean) / std


def _augmented(
    images: UInt8[Tensor, "n h w c"], generator: torch.Generator, reach: int = 4
) -> UInt8[Tensor, "n h w c"]:
    """Shift each image by up to ``reach`` pixels, zeros move in, and mirror half of them."""
    n, h, w, _ = images.shape
    shift = torch.randint(-reach, reach + 1, (2, n, 1), generator=generator).to(images.device)
    mirrored = torch.rand((n, 1), generator=generator).to(images.device) < 0.5
    rows = torch.arange(h, device=images.device) + shift[0]
    columns = torch.arange(w, device=images.device)
    columns = torch.where(mirrored, w - 1 - columns, columns) + shift[1]
    inside = ((rows >= 0) & (rows < h))[:, :, None] & ((columns >= 0) & (columns < w))[:, None, :]
    each = torch.arange(n, device=images.device)[:, None, None]
    moved = images[each, rows.clamp(0, h - 1)[:, :, None], columns.clamp(0, w - 1)[:, None, :]]
    return moved * inside[..., None]


def _seed(seed: int, epoch: int, purpose: str) -> int:
    digest = hashlib.sha256(f"{seed}/{epoch}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _check_classes(scores: Tensor, *labels: Tensor) -> None:
    largest = max(int(part.max()) for part in labels)
    if scores.ndim != 2 or largest >= scores.shape[1]:
        raise ValueError(
            f"the network's scores have shape {tuple(scores.shape)}; labels up to {largest} need"
            f" (n, {largest + 1}) or more"
        )


# --- optimisation ---------------------------------------------------------------------------


def _half_precision(device: torch.device) -> torch.dtype | None:
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _optimizer(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    # Vectors (biases, norms) and the places that heads look at are no weights to be kept small.
    places = ("centres", "log_alpha", "root", "rows", "columns", "u", "v")
    decayed, free, moved = [], [], []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        if name.rsplit(".", 1)[-1] in places:
            moved.append(parameter)
        else:
            (free if parameter.ndim < 2 else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay, "multiple": 1.0},
        {"params": free, "weight_decay": 0.0, "multiple": 1.0},
        {"params": moved, "weight_decay": 0.0, "multiple": recipe.place_rate},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.learning_rate)
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum)


# --- checkpoints ----------------------------------------------------------------------------


def _identity(network: nn.Module, recipe: Recipe, data: Sequence[Tensor]) -> dict[str, str]:
    """What a checkpoint has to agree on before training goes on from it."""
    shapes = [(name, tuple(value.shape)) for name, value in network.state_dict().items()]
    digest = hashlib.sha256()
    for part in data:
        digest.update(part.cpu().numpy().tobytes())
    return {
        "network": hashlib.sha256(repr(shapes).encode()).hexdigest(),
        "recipe": repr(sorted(asdict(recipe).items())),
        "data": digest.hexdigest(),
    }


def _save(
    file: Path,
    identity: dict[str, str],
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    history: Sequence[dict[str, int | float]],
) -> None:
    state = {
        "identity": identity,
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "history": list(history),
    }
    # To memory first: torch turns a full disk into an error that does not name it.
    content = io.BytesIO()
    torch.save(state, content)
    sealed.write(file, content.getbuffer())


def _restore(
    file: Path,
    identity: dict[str, str],
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    device: torch.device,
) -> list[dict[str, int | float]]:
    content = sealed.read(file)
    try:
        if content is None:  # unpacking alone would not see every changed byte
            raise ChecksumError("other bytes than were written")
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        found = dict(state["identity"])
        parts = [state[name] for name in ("network", "optimizer", "scaler", "history")]
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(
            f"checkpoint {str(file)!r} cannot be read ({type(error).__name__}): it is damaged or no"
            " checkpoint; give another file, or delete it"
        ) from error
    for part, value in identity.items():
        if found.get(part) != value:
            raise ValueError(
                f"checkpoint {str(file)!r} is of another {part}; give another file, or delete it"
            )
    weights, moments, scale, history = parts
    network.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    if scale:
        scaler.load_state_dict(scale)
    return history
