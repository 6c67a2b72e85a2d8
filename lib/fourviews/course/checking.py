"""What checks are made of: the registry, the call of an answer, and words for what is wrong.

A check is written for people who are stuck.  It gets whatever they have: a function that returns
nothing, a transposed array, an exception.  Each of these must end in one sentence that helps, and
none in a traceback.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import inspect
import linecache
import numbers
import pkgutil
import random
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..display.switches import switched_on

PASSED = "public checks passed"


class Failed(Exception):
    """An answer that is not right yet; its text says why."""


@dataclass(frozen=True)
class Result:
    """What a check found.

    Parameters
    ----------
    passed
        Whether the answer has all the properties that were looked at.
    message
        «public checks passed.», or one or two sentences about what is missing.
    """

    passed: bool
    message: str


@dataclass(frozen=True)
class _Check:
    """A registered check: ``function(generator, *answers)`` and where it was written."""

    function: Callable[..., None]
    answers: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.function.__code__.co_filename

    @property
    def place(self) -> tuple[str, int]:
        return self.file, self.function.__code__.co_firstlineno


_checks: dict[str, _Check] = {}
_names: ContextVar[tuple[tuple[Any, str], ...]] = ContextVar("names of answers", default=())


# Registering and finding checks


def exercise(identifier: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the public check of an exercise, as a decorator.

    The check is a function of a ``torch.Generator``, named ``generator``, and of the answers in
    the order in which ``course.check`` gets them.  It returns nothing; what is wrong with an
    answer it says through :func:`require`, :func:`tensor`, :func:`number` or :func:`close`.

    Parameters
    ----------
    identifier
        The exercise's label, ``ex-…``.

    Raises
    ------
    ValueError
        If the label is malformed or taken, or the function's parameters are not
        ``generator`` and one or more answers.

    Examples
    --------
    >>> @exercise("ex-doc-double")
    ... def doubled(generator, double):
    ...     x = torch.randn(4, generator=generator, dtype=torch.float64)
    ...     twice = tensor(run(double, x), (4,), "double(x)", dtype=x.dtype)
    ...     close(twice - x, x, "double(x) is not x + x")
    >>> examine("ex-doc-double", lambda x: 2 * x).passed
    True
    >>> del _checks["ex-doc-double"]
    """
    if not isinstance(identifier, str) or not re.fullmatch(r"ex(-[a-z0-9]+)+", identifier):
        raise ValueError(f"identifier: need a label such as 'ex-mlp-adjoint', got {identifier!r}")

    def register(function: Callable[..., None]) -> Callable[..., None]:
        parameters = list(inspect.signature(function).parameters.values())
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)
        names = tuple(p.name for p in parameters)
        if len(names) < 2 or names[0] != "generator" or not plain:
            raise ValueError(
                f"{identifier}: the check takes `generator` and then the answers, "
                f"got {function.__name__}{inspect.signature(function)}"
            )
        new = _Check(function, names[1:])
        old = _checks.get(identifier)
        if old is not None and old.place != new.place:
            raise ValueError(
                f"identifier {identifier!r} has two checks: in {old.file} and in {new.file}"
            )
        _checks[identifier] = new
        return function

    return register


def registered() -> dict[str, Callable[..., None]]:
    """Every check by its label, from all modules of this package that are named like a lesson."""
    package = __package__ or ""
    for module in pkgutil.iter_modules(sys.modules[package].__path__):
        if re.fullmatch(r"[a-z]+_\d\d_[a-z0-9_]+", module.name):
            importlib.import_module(f"{package}.{module.name}")
    return {identifier: entry.function for identifier, entry in _checks.items()}


def _find(identifier: str, answers: tuple[Any, ...]) -> _Check:
    known = registered()
    if identifier not in known:
        near = difflib.get_close_matches(str(identifier), known, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else f"there are {', '.join(sorted(known))}"
        raise ValueError(f"identifier: no exercise {identifier!r}; {hint}")
    entry = _checks[identifier]
    if len(answers) != len(entry.answers):
        raise ValueError(
            f"{identifier}: need {_count(len(entry.answers), 'answer')} "
            f"({', '.join(entry.answers)}), got {len(answers)}"
        )
    return entry


# Checking


def check(identifier: str, *answers: Any) -> None:
    """Check an answer to an exercise and print what was found.

    Prints ``LABEL: public checks passed.`` or ``LABEL: not yet.`` with what is missing.  A wrong
    answer raises nothing, whatever it does.  The data are drawn afresh at each call, so a second
    call looks at other numbers.

    Parameters
    ----------
    identifier
        The exercise's label, as in the check cell below the exercise.
    answers
        What the exercise asks for: functions (not their results), tensors or numbers.

    Raises
    ------
    ValueError
        If there is no such exercise, or the number of answers is not the one that it asks for.

    Examples
    --------
    >>> from fourviews import course
    >>> course.check("ex-mlp-adjoint", forward, adjoint)  # doctest: +SKIP
    ex-mlp-adjoint: public checks passed.
    """
    result = examine(identifier, *answers)
    if result.passed:
        print(f"{identifier}: {result.message}")
    else:
        print(f"{identifier}: not yet. {result.message}")


def examine(identifier: str, *answers: Any, seed: int | None = None) -> Result:
    """Check an answer to an exercise and return what was found.

    The global random states of torch, NumPy and Python are set from the seed while the check runs
    and put back after it, as are torch's default number type and gradient mode.

    Parameters
    ----------
    identifier, answers
        As for :func:`check`.
    seed
        Non-negative; the same seed draws the same data.  None takes a fresh one, or 0 while the
        book is built, so that its pages do not change from build to build.

    Returns
    -------
    Result
        Whether the answer passed, and the message.

    Raises
    ------
    ValueError
        If there is no such exercise, the number of answers is not the one that it asks for, or the
        seed is negative or no integer.

    Examples
    --------
    >>> from fourviews import course
    >>> course.examine("ex-mlp-adjoint", forward, adjoint, seed=3).passed  # doctest: +SKIP
    True
    """
    entry = _find(identifier, answers)
    if seed is None:
        seed = 0 if switched_on("FOURVIEWS_BOOK_BUILD") else secrets.randbits(62)
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(f"seed: need an integer from 0 to 2**63 - 1, got {seed!r}")
    seed = int(seed)
    token = _names.set(tuple(zip(answers, entry.answers, strict=True)))
    try:
        with own_state(seed):
            entry.function(torch.Generator().manual_seed(seed), *answers)
    except Failed as failure:
        return Result(False, _sentence(str(failure)))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The answer is such that the check cannot even look at it.
        return Result(False, f"The check cannot make sense of this answer: {error_in_words(error)}")
    finally:
        _names.reset(token)
    return Result(True, f"{PASSED}.")


@contextmanager
def own_state(seed: int) -> Iterator[None]:
    """Global state that answers use or change, set from `seed` and put back afterwards.

    Only devices that are already in use are touched: asking CUDA for its state would start it.
    """
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    number_type = torch.get_default_dtype()
    try:
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        with torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(number_type)
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        random.setstate(kept[2])
        if on_gpu is not None:
            torch.cuda.set_rng_state_all(on_gpu)


# Helpers of checks


def require(condition: bool | Tensor, words: str) -> None:
    """Fail with `words` unless the condition holds.

    Raises
    ------
    Failed
        If it does not.
    ValueError
        If `words` is empty: whoever is told «not yet» must be told why.

    Examples
    --------
    >>> require(2 > 3, "2 is not above 3")
    Traceback (most recent call last):
    fourviews.course.checking.Failed: 2 is not above 3
    """
    if not words:
        raise ValueError("words: say what is wrong when the condition does not hold")
    if not condition:
        raise Failed(words)


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an answer's function on copies of the arguments and return what it returns.

    Modules, tensors, arrays and containers are copied, so that an answer that works in place
    cannot change what the check compares it with.  Gradients flow through the copies.

    Parameters
    ----------
    function
        The answer.
    args, kwargs
        Its arguments.  Messages call them by the names that they have in the check.

    Raises
    ------
    Failed
        If `function` is no function, takes other arguments, raises, or changes a tensor or an
        array that it was given.

    Examples
    --------
    >>> x = torch.ones(2)
    >>> run(torch.sum, x)
    tensor(2.)
    >>> run(torch.abs_, x - 2)
    Traceback (most recent call last):
    fourviews.course.checking.Failed: abs_(…) changes an argument in place: work on a copy
    """
    frame = sys._getframe(1)
    name = _name_of(function)
    shown = [_shown(value, frame.f_locals) for value in args]
    shown += [f"{key}={_shown(value, frame.f_locals)}" for key, value in kwargs.items()]
    call = f"{name}({', '.join(shown)})"
    if not callable(function):
        raise Failed(
            f"{name} is {_kind(function)}, not a function: "
            "give the function itself, without calling it"
        )
    try:
        called = function.forward if isinstance(function, torch.nn.Module) else function
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # functions that are not written in Python
        signature = None
    if signature is not None:
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            yours = ", ".join(signature.parameters)
            raise Failed(f"{name} is called as {call}, but yours is {name}({yours})") from None
    copies, named = [_copied(a) for a in args], {k: _copied(v) for k, v in kwargs.items()}
    try:
        value = function(*copies, **named)
    except (Failed, KeyboardInterrupt):
        raise
    except NotImplementedError as error:
        detail = _first_line(error)
        raise Failed(f"{call} is not written yet" + (f": {detail}" if detail else "")) from None
    except BaseException as error:
        code = getattr(inspect.unwrap(function), "__code__", None)
        words = error_in_words(error, code.co_filename if code else None)
        raise Failed(f"{call} raised {words}") from None
    before, after = [*args, *kwargs.values()], [*copies, *named.values()]
    for label, old, new in zip(shown, before, after, strict=True):
        if not _same(old, new):
            which = label.partition("=")[2] or label
            raise Failed(
                f"{name}(…) changes {'an argument' if which == '…' else which} in place: "
                "work on a copy"
            )
    return value


class LargestResult(TorchFunctionMode):
    """Notes how many numbers the largest tensor holds that torch returns inside the block."""

    numbers = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self.numbers = max(self.numbers, part.numel())
        return result


def tensor(
    value: Any,
    shape: tuple[int | None, ...],
    name: str,
    dtype: torch.dtype | None = None,
    *,
    keep_graph: bool = False,
) -> Tensor:
    """Return `value` if it is a finite dense tensor of the shape, and say what it is if not.

    Parameters
    ----------
    value
        What came from an answer.
    shape
        The shape needed; None stands for any length.
    name
        How messages call the value, for example ``"forward(X, masks, Z)"``.
    dtype
        The number type needed; None leaves it open.
    keep_graph
        Whether the result may require gradients; by default it is detached.

    Raises
    ------
    Failed
        If it is something else, lies on another device than the CPU, or has NaN or infinite
        entries.

    Examples
    --------
    >>> tensor(torch.zeros(3, 5), (5, 3), "forward(X)")
    Traceback (most recent call last):
    fourviews.course.checking.Failed: forward(X) has shape (3, 5); it needs (5, 3). Is it transposed?
    """
    if not isinstance(value, Tensor):
        raise Failed(f"{name} {_not_a_tensor(value)}")
    if value.layout != torch.strided:
        raise Failed(f"{name} is a sparse tensor; it must be dense (.to_dense() makes it so)")
    _right_shape(tuple(value.shape), tuple(shape), name)
    if dtype is not None and value.dtype != dtype:
        raise Failed(f"{name} is {_type(value.dtype)}; it needs {_type(dtype)}")
    if value.device.type != "cpu":
        raise Failed(f"{name} lies on {value.device}; it must lie on the CPU (.cpu())")
    _finite(value.detach(), name)
    return value if keep_graph else value.detach()


def number(value: Any, name: str) -> float:
    """Return `value` as a float if it is one finite real number, and say what it is if not.

    Python's and NumPy's numbers will do, and tensors and arrays without axes.

    Raises
    ------
    Failed
        If it is something else.

    Examples
    --------
    >>> number(torch.tensor(2.5), "gap")
    2.5
    >>> number([2.5], "gap")
    Traceback (most recent call last):
    fourviews.course.checking.Failed: gap is a list; it must be one number
    """
    shown = value
    if isinstance(value, Tensor | np.ndarray):
        if tuple(value.shape) != ():
            raise Failed(f"{name} has shape {_text(value.shape)}; it must be one number")
        shown = value.item()
    elif isinstance(value, np.generic):
        shown = value.item()
    if shown is None:
        raise Failed(f"{name} is None. Is a `return` missing?")
    if isinstance(shown, bool) or not isinstance(shown, numbers.Real):
        raise Failed(f"{name} is {_kind(shown)}; it must be one number")
    try:
        result = float(shown)
    except OverflowError:
        raise Failed(f"{name} is too large for a floating-point number") from None
    if result != result or result in (float("inf"), float("-inf")):
        raise Failed(f"{name} is {'NaN' if result != result else 'infinite'}")
    return result


def close(got: Any, wanted: Any, words: str, rtol: float = 1e-8, atol: float = 1e-10) -> None:
    r"""Fail with `words` unless :math:`|got-wanted|\le atol+rtol\,|wanted|` in each entry.

    The message adds what helps to find the fault: how far the two are apart, whether only the sign
    is wrong, only the axes, only a factor, or only the precision.

    Parameters
    ----------
    got
        Numbers from an answer, as :func:`tensor` or :func:`number` gave them.
    wanted
        Numbers from an independent computation, of the same shape.
    words
        What is wrong if they differ, for example ``"forward is not the sum of D_j X Z_j"``.
    rtol, atol
        Relative and absolute tolerance.

    Raises
    ------
    Failed
        If the numbers or the shapes differ.
    ValueError
        If `words` is empty or `wanted` is not finite: the fault is then the check's.

    Examples
    --------
    >>> close(torch.tensor([1.0, -2.0]), torch.tensor([-1.0, 2.0]), "f is not the gradient")
    Traceback (most recent call last):
    fourviews.course.checking.Failed: f is not the gradient. Only the sign is wrong.
    """
    if not words:
        raise ValueError("words: say what is wrong when the numbers differ")
    a, b = _as_tensor(got), _as_tensor(wanted)
    if not torch.isfinite(b).all():
        raise ValueError(f"wanted: need finite numbers (for the message {words!r})")
    if a.shape != b.shape:
        raise Failed(f"{words}: shape {_text(a.shape)} instead of {_text(b.shape)}")
    if not torch.isfinite(a).all():
        raise Failed(f"{words}: it has entries that are NaN or infinite")
    types = a.dtype, b.dtype
    a, b = _widest(a), _widest(b)
    if bool(((a - b).abs() <= atol + rtol * b.abs()).all()):
        return
    raise Failed(_sentence(words) + " " + _difference(a, b, types, rtol, atol))


# What is wrong, in words


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    return torch.as_tensor(np.asarray(value))


def _widest(value: Tensor) -> Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _difference(
    a: Tensor, b: Tensor, types: tuple[torch.dtype, torch.dtype], rtol: float, atol: float
) -> str:
    """How `a` misses `b`, when it is one of the usual ways; `types` are those they came in."""
    apart, size = float((a - b).abs().max()), float(b.abs().max())
    if types[1] in (torch.float64, torch.complex128):
        coarse = types[0].is_floating_point and torch.finfo(types[0]).eps > 1e-12
        coarse |= types[0] == torch.complex64
        rounding = 100 * torch.finfo(types[0]).eps if coarse else 1e-5
        if rtol < rounding and apart <= rounding * size:
            if coarse:
                return f"It agrees to the precision of {_type(types[0])}: keep the input's type."
            part = f"{apart / size:.1g} of its size"
            return f"It is off by {part}: is a part of it computed in float32?"
    loose = max(rtol, 1e-6) * size
    if apart > 2 * loose:
        if (a + b).abs().max() <= loose:
            return "Only the sign is wrong."
        square = a.ndim >= 2 and a.shape[-1] == a.shape[-2]
        if square and (a.mT - b).abs().max() <= loose:
            return "It is transposed."
        if a.numel() > 1 and size > 0 and not a.is_complex():
            factor = float((a * b).sum()) / float((b * b).sum())
            if abs(factor) > 1e-3 and (a - factor * b).abs().max() <= loose:
                return f"Each entry is {factor:.4g} times what it must be."
    if a.numel() > 1:
        wrong = int(((a - b).abs() > atol + rtol * b.abs()).sum())
        return f"{wrong} of {a.numel()} entries differ, by up to {apart:.2g}."
    return f"It is off by {apart:.2g}."


def _not_a_tensor(value: Any) -> str:
    if value is None:
        return "is None. Is a `return` missing?"
    if value is Ellipsis:
        return "is not written yet: it is still `...`"
    if isinstance(value, np.ndarray | np.generic):
        return f"is {_kind(value)}; it must be a torch tensor (torch.as_tensor makes one)"
    if isinstance(value, tuple) and any(isinstance(part, Tensor) for part in value):
        return f"is a tuple of {len(value)} values; it must be one torch tensor"
    if callable(value) and not isinstance(value, torch.nn.Module):
        return "is a function; it must be a torch tensor. Is a call missing?"
    return f"is {_kind(value)}; it must be a torch tensor"


def _right_shape(got: tuple[int, ...], wanted: tuple[int | None, ...], name: str) -> None:
    def fits(shape: tuple[int, ...]) -> bool:
        return len(shape) == len(wanted) and all(
            w is None or g == w for g, w in zip(shape, wanted, strict=True)
        )

    if fits(got):
        return
    hint = ""
    if len(got) >= 2 and fits(got[::-1]):
        hint = " Is it transposed?"
    elif len(got) > 2 and fits((*got[:-2], got[-1], got[-2])):
        hint = " Are the last two axes swapped?"
    elif len(got) == len(wanted) and None not in wanted and sorted(got) == sorted(wanted):
        hint = " Are its axes in another order?"
    elif [g for g in got if g != 1] == [w for w in wanted if w != 1]:
        long = len(got) > len(wanted)
        hint = f" An axis of length 1 is {'too many' if long else 'missing'}."
    raise Failed(f"{name} has shape {_text(got)}; it needs {_text(wanted)}.{hint}")


def _finite(value: Tensor, name: str) -> None:
    bad = ~torch.isfinite(value)
    if bad.any():
        what = "NaN" if torch.isnan(value).any() else "infinite"
        count = "all" if bad.all() else f"{int(bad.sum())} of"
        where = "" if value.ndim == 0 else f" in {count} {value.numel()} entries"
        raise Failed(f"{name} is {what}{where}")


def _text(shape: tuple[int | None, ...]) -> str:
    """A shape as Python writes it, with `any` for a length that is open."""
    parts = ["any" if length is None else str(length) for length in shape]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _kind(value: Any) -> str:
    """What a value is, with its article."""
    if value is None or isinstance(value, bool) or value is Ellipsis:
        return "still `...`" if value is Ellipsis else str(value)
    if isinstance(value, Tensor):
        return f"a tensor of shape {_text(tuple(value.shape))}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {_text(value.shape)}"
    if isinstance(value, np.generic):
        return f"a NumPy number ({value.dtype})"
    if isinstance(value, complex):
        return "a complex number"
    if isinstance(value, int | float):
        return f"the number {value:.6g}" if abs(value) < 1e300 else "a number"
    if isinstance(value, str):
        return "a text"
    if inspect.isroutine(value):
        return "a function"
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _name_of(value: Any) -> str:
    """How the exercise calls an answer: students may have named theirs otherwise."""
    for answer, name in _names.get():
        if answer is value:
            return name
    return getattr(value, "__name__", None) or "the answer"


def _shown(value: Any, names: dict[str, Any]) -> str:
    """An argument as a message writes it: its name in the check, or its value if it is short."""
    if value is None or isinstance(value, bool | int | str):
        # Python shares small values between names, so that a name found here may be another's.
        text = repr(value)
        return text if len(text) <= 20 else "…"
    for name, other in names.items():
        if other is value:
            return name
    return f"{value:.4g}" if isinstance(value, float) else "…"


def _first_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # an exception class of the student's, with a fault of its own
        text = ""
    line = text.strip().split("\n")[0].strip()
    return line if len(line) <= 160 else line[:157] + "…"


def error_in_words(error: BaseException, filename: str | None = None) -> str:
    """Kind and first line of an exception, and the line of `filename` that it came from."""
    detail = _first_line(error)
    words = type(error).__name__ + (f": {detail}" if detail else "")
    line, trace = "", error.__traceback__
    while filename is not None and trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = linecache.getline(filename, trace.tb_lineno).strip()
        trace = trace.tb_next
    return words + (f" (in the line `{line}`)" if line and len(line) <= 100 else "")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ":")) else text + "."


# Copies of arguments


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, torch.Generator):
        twin = torch.Generator(device=value.device)
        twin.set_state(value.get_state())
        return twin
    if type(value) in (list, tuple, set):
        return type(value)(_copied(part) for part in value)
    if type(value) is dict:
        return {key: _copied(part) for key, part in value.items()}
    if inspect.isroutine(value) or inspect.isclass(value):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # some objects cannot be copied: they are handed over as they are
        return value


def _same(old: Any, new: Any) -> bool:
    """Whether tensors and arrays, in containers too, hold what they held."""
    if isinstance(old, Tensor):
        if old.shape != new.shape or old.dtype != new.dtype:
            return False
        a, b = old.detach(), new.detach()
        return bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(old, np.ndarray):
        return old.shape == new.shape and bool(((old == new) | ((old != old) & (new != new))).all())
    if type(old) in (list, tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if type(old) is dict:
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    return True
