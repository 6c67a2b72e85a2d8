"""One code of a lab in three sizes, and the tables that the larger sizes left.

A lab reads its sizes from `preset`.  The book runs ``page``, ``make lab LESSON=…`` runs
``reduced``, a machine with a GPU ``full``.  What ``reduced`` and ``full`` measure is kept beside
this module with date, commit and hardware, so that a page can show it without running it.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import pickle
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import torch

PRESETS = ("page", "reduced", "full")
VARIABLE = "FOURVIEWS_PRESET"
FOLDER_VARIABLE = "FOURVIEWS_RESULTS"
T = TypeVar("T")
_KEPT = Path(__file__).with_name("results")


class Preset(SimpleNamespace):
    """The sizes of one run, which `preset` makes.

    Attributes
    ----------
    name
        ``"page"``, ``"reduced"`` or ``"full"``; beside it one attribute for each size.
    """

    name: str


def preset(
    *, page: Mapping[str, Any], reduced: Mapping[str, Any], full: Mapping[str, Any]
) -> Preset:
    """The sizes that this run of a lab uses.

    The environment variable ``FOURVIEWS_PRESET`` chooses; without it, ``page``.

    Parameters
    ----------
    page, reduced, full
        Sizes by name.  All three name the same ones, and none is called ``name``.

    Returns
    -------
    Preset
        ``preset.reviews`` and so on, and ``preset.name``.

    Raises
    ------
    ValueError
        If the variable names no preset or the three presets name different sizes.

    Examples
    --------
    >>> from fourviews import course
    >>> chosen = course.preset(page={"steps": 50}, reduced={"steps": 500}, full={"steps": 2000})
    >>> chosen.name, chosen.steps
    ('page', 50)
    """
    sizes = {"page": dict(page), "reduced": dict(reduced), "full": dict(full)}
    for name in ("reduced", "full"):
        differing = sorted(set(sizes[name]) ^ set(page))
        if differing:
            raise ValueError(
                f"{name} and page must name the same sizes; {', '.join(differing)} is only in one"
            )
    if "name" in page:
        raise ValueError('a size cannot be called "name": that is the preset\'s own')
    name = os.environ.get(VARIABLE) or "page"
    if name not in PRESETS:
        raise ValueError(f"{VARIABLE} is {name!r}; it must be one of {', '.join(PRESETS)}")
    return Preset(name=name, **sizes[name])


@dataclass(frozen=True)
class KeptResults:
    """A table that an earlier, larger run of a lab left.

    Attributes
    ----------
    lesson, preset
        Which lab in which size.
    date
        Day of the run, ``YYYY-MM-DD``.
    commit
        What the library was: a commit, with ``+`` if files had changed since, or its version.
    hardware
        Processor, cores, threads and GPU, versions of Python and torch.
    rows
        The table, one mapping from column to value a row.
    """

    lesson: str
    preset: str
    date: str
    commit: str
    hardware: str
    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        return f"preset {self.preset}, {self.date}, commit {self.commit}, {self.hardware}"


def kept_results(lesson: str, preset: str = "reduced") -> KeptResults | None:
    """The table that a lab left in a larger size, None if that size never ran.

    Parameters
    ----------
    lesson
        Name of the lab, such as ``"unrolled_04_sentiment_lab"``.
    preset
        ``"reduced"`` or ``"full"``.

    Raises
    ------
    ValueError
        If `preset` is another word or `lesson` is no name of a lesson.
    """
    path = _KEPT / _file_name(lesson, preset)
    if not path.exists():
        return None
    return KeptResults(**json.loads(path.read_text(encoding="utf-8")))


def keep_results(
    lesson: str, rows: Iterable[Mapping[str, Any]], *, preset: Preset
) -> KeptResults | None:
    """Keep the table of a run in size ``reduced`` or ``full``; on a page do nothing.

    The file goes into the folder that ``FOURVIEWS_RESULTS`` names (``make lab`` names the
    library's own), else into the working directory.

    Parameters
    ----------
    lesson
        Name of the lab.
    rows
        Rows of the table; values are numbers, strings, booleans or None.
    preset
        What `preset` returned.

    Returns
    -------
    KeptResults or None
        What was written; None under ``page``.

    Raises
    ------
    ValueError
        If a value is neither of these or not finite, or there is no row.
    """
    if preset.name == "page":
        return None
    name = _file_name(lesson, preset.name)
    table = [{column: _plain(column, value) for column, value in row.items()} for row in rows]
    if not table:
        raise ValueError(f"rows is empty: {lesson} has nothing to keep")
    kept = KeptResults(
        lesson, preset.name, datetime.date.today().isoformat(), _commit(), _hardware(), table
    )
    folder = Path(os.environ.get(FOLDER_VARIABLE) or ".")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(vars(kept), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    unfinished = folder / f".{name}.part"
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(folder / name)
    shutil.rmtree(_pieces(lesson, preset.name), ignore_errors=True)
    return kept


def piece(lesson: str, name: str, compute: Callable[[], T], *, preset: Preset) -> T:
    """A part of a long run, computed once: an interrupted run goes on after its last whole part.

    Parts are kept beside the table, apart for each commit of the library, until `keep_results`
    writes it.  On a page each call computes.

    Parameters
    ----------
    lesson
        Name of the lab.
    name
        Of the part; letters, digits, ``-``, ``_``, ``.`` and ``+``.
    compute
        Makes the part: numbers, strings, None and tensors, in lists, tuples and dicts.
    preset
        What `preset` returned.

    Returns
    -------
    What `compute` returned, now or in an earlier run.

    Raises
    ------
    ValueError
        If `lesson` or `name` cannot name a file, or the part holds other things.
    """
    if preset.name == "page":
        return compute()
    folder = _pieces(lesson, preset.name)
    if not re.fullmatch(r"[\w.+-]+", name, re.ASCII) or name.startswith("."):
        raise ValueError(f"name is {name!r}; letters, digits and - _ . + can name a part")
    path = folder / f"{name}.pt"
    if path.exists():
        return torch.load(path, weights_only=True)
    value = compute()
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{name}.part"
    torch.save(value, unfinished)
    try:
        torch.load(unfinished, weights_only=True)  # what cannot come back is told now
    except pickle.UnpicklingError as error:
        unfinished.unlink()
        raise ValueError(
            f"{name} holds other things than numbers, strings, None and tensors in lists, tuples "
            f"and dicts: {str(error).splitlines()[0]}"
        ) from error
    unfinished.replace(path)
    return value


def _pieces(lesson: str, preset: str) -> Path:
    where = Path(os.environ.get(FOLDER_VARIABLE) or ".")
    stem = _file_name(lesson, preset).removesuffix(".json")
    return where / ".pieces" / f"{stem}.{_commit().replace(' ', '-')}"


def _file_name(lesson: str, preset: str) -> str:
    if not re.fullmatch(r"[a-z]+_\d\d_[a-z0-9_]+", lesson):
        raise ValueError(f"lesson is {lesson!r}; a name such as 'unrolled_04_sentiment_lab' is due")
    if preset not in PRESETS[1:]:
        raise ValueError(f"preset is {preset!r}; it must be 'reduced' or 'full'")
    return f"{lesson}.{preset}.json"


def _plain(column: str, value: Any) -> Any:
    """A value as JSON knows it; tensors and arrays of one number become that number."""
    if hasattr(value, "item") and getattr(value, "size", None) != 0:
        try:
            value = value.item()
        except (RuntimeError, ValueError):
            raise ValueError(f"rows: {column} holds more than one number") from None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"rows: {column} is {value!r}; a finite number, text or None is due")


def _commit() -> str:
    here = Path(__file__).parent
    try:
        run = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--abbrev=12", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return run.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        try:
            return f"fourviews {metadata.version('fourviews')}"
        except metadata.PackageNotFoundError:
            return "unknown"


def _hardware() -> str:
    processor = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass  # not Linux: what `platform` knows has to do
    words = [processor, f"{os.cpu_count()} cores", f"{torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        words.append(torch.cuda.get_device_name())
    words += [f"Python {platform.python_version()}", f"torch {torch.__version__.split('+')[0]}"]
    return ", ".join(words)
