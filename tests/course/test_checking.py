"""Checks meet what students hand in, and answer in words."""

from __future__ import annotations

import inspect
import math
import random
import re
import sys
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from fourviews import course
from fourviews.course import checking
from fourviews.course.checking import Failed, close, exercise, number, require, run, tensor


@pytest.fixture
def registry() -> Iterator[dict]:
    """The registry, put back as it was after the test."""
    checking.registered()
    kept = dict(checking._checks)
    yield checking._checks
    checking._checks.clear()
    checking._checks.update(kept)


@pytest.fixture
def linear(registry) -> str:
    """An exercise that asks for the product of two matrices and its adjoint."""

    @exercise("ex-test-linear")
    def linear(generator, forward, adjoint):
        n, p, q = 7, 3, 2
        X = torch.randn(n, p, generator=generator, dtype=torch.float64)
        Z = torch.randn(p, q, generator=generator, dtype=torch.float64)
        R = torch.randn(n, q, generator=generator, dtype=torch.float64)
        F = tensor(run(forward, X, Z), (n, q), f"for {n} rows, forward(X, Z)", dtype=X.dtype)
        close(F, X @ Z, "forward is not X Z")
        G = tensor(run(adjoint, X, R), (p, q), "adjoint(X, R)", dtype=X.dtype)
        close((Z * G).sum(), (F * R).sum(), "adjoint does not belong to forward")
        close(G, X.T @ R, "adjoint is not X^T R")

    return "ex-test-linear"


def forward(X, Z):
    return X @ Z


def adjoint(X, R):
    return X.mT @ R


# What students hand in


def with_self(self, X, Z):
    return X @ Z


def raises_in_two_lines(X, Z):
    raise RuntimeError("first line\nsecond line")


def raises_without_words(X, Z):
    raise KeyError


class Nasty(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raises_nastily(X, Z):
    raise Nasty


def leaves(X, Z):
    sys.exit(3)


def not_written(X, Z):
    raise NotImplementedError


def in_place(X, Z):
    X *= 2
    return (X / 2) @ Z


def resizes_in_place(X, Z):
    out = X @ Z
    Z.unsqueeze_(0)
    return out


def recursive(X, Z):
    return recursive(X, Z)


def yields(X, Z):
    yield X @ Z


CASES = {
    "nothing is returned": (lambda X, Z: None, "forward(X, Z) is None. Is a `return` missing?"),
    "dots are left": (lambda X, Z: ..., "is not written yet: it is still `...`"),
    "not implemented": (not_written, "forward(X, Z) is not written yet."),
    "a list": (lambda X, Z: (X @ Z).tolist(), "is a list; it must be a torch tensor"),
    "an array": (lambda X, Z: (X @ Z).numpy(), "is a NumPy array of shape (7, 2); it must be"),
    "a number": (lambda X, Z: 3.5, "is the number 3.5; it must be a torch tensor"),
    "a huge number": (lambda X, Z: 10**400, "is a number; it must be a torch tensor"),
    "a text": (lambda X, Z: "X @ Z", "is a text; it must be"),
    "a tuple": (lambda X, Z: (X @ Z, X), "is a tuple of 2 values; it must be one torch tensor"),
    "a function": (lambda X, Z: torch.sum, "is a function; it must be a torch tensor. Is a call"),
    "a generator": (yields, "is a generator; it must be a torch tensor"),
    "a transposed tensor": (
        lambda X, Z: (X @ Z).T,
        "for 7 rows, forward(X, Z) has shape (2, 7); it needs (7, 2). Is it transposed?",
    ),
    "an axis too many": (lambda X, Z: (X @ Z)[None], "An axis of length 1 is too many."),
    "a scalar": (lambda X, Z: (X @ Z).sum(), "has shape (); it needs (7, 2)."),
    "too few rows": (lambda X, Z: (X @ Z)[1:], "has shape (6, 2); it needs (7, 2)."),
    "float32": (lambda X, Z: (X @ Z).float(), "is float32; it needs float64."),
    "whole numbers": (lambda X, Z: (X @ Z).long(), "is int64; it needs float64."),
    "float32 inside": (
        lambda X, Z: (X.float() @ Z.float()).double(),
        "is a part of it computed in float32?",
    ),
    "a sparse tensor": (lambda X, Z: (X @ Z).to_sparse(), "is a sparse tensor; it must be dense"),
    "NaN": (lambda X, Z: X @ Z * math.nan, "is NaN in all 14 entries."),
    "one NaN": (
        lambda X, Z: torch.where(torch.arange(14).view(7, 2) == 3, math.nan, X @ Z),
        "is NaN in 1 of 14 entries.",
    ),
    "infinite": (lambda X, Z: X @ Z / 0, "is infinite in all 14 entries."),
    "on another device": (lambda X, Z: (X @ Z).to("meta"), "lies on meta; it must lie on the CPU"),
    "wrong sign": (lambda X, Z: -X @ Z, "forward is not X Z. Only the sign is wrong."),
    "a factor": (lambda X, Z: X @ Z / 7, "Each entry is 0.1429 times what it must be."),
    "other numbers": (lambda X, Z: X @ Z + 1, "14 of 14 entries differ, by up to 1."),
    "one other number": (
        lambda X, Z: X @ Z + (torch.arange(14).view(7, 2) == 3),
        "1 of 14 entries differ, by up to 1.",
    ),
    "wrong shapes inside": (
        lambda X, Z: Z @ X,
        "forward(X, Z) raised RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
    "lines of an error": (
        raises_in_two_lines,
        "raised RuntimeError: first line (in the line `raise RuntimeError(",
    ),
    "no words in an error": (
        raises_without_words,
        "raised KeyError (in the line `raise KeyError`)",
    ),
    "an error that cannot be read": (raises_nastily, "raised Nasty (in the line"),
    "leaving": (leaves, "raised SystemExit: 3"),
    "no end": (recursive, "raised RecursionError: maximum recursion depth"),
    "too few arguments": (
        lambda X: X,
        "forward is called as forward(X, Z), but yours is forward(X).",
    ),
    "too many arguments": (with_self, "but yours is forward(self, X, Z)."),
    "argument changed": (in_place, "forward(…) changes X in place: work on a copy."),
    "argument resized": (resizes_in_place, "forward(…) changes Z in place: work on a copy."),
    "a call's result": (
        forward(torch.ones(2, 2), torch.ones(2, 2)),
        "forward is a tensor of shape (2, 2), not a function: give the function itself",
    ),
    "None for a function": (None, "forward is None, not a function"),
    "dots for a function": (..., "forward is still `...`, not a function"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_students_hand_in_is_answered_in_words(linear, name, capsys):
    answer, words = CASES[name]
    result = course.examine(linear, answer, adjoint, seed=4)
    assert not result.passed
    assert words in result.message
    assert "Traceback" not in result.message and "\n" not in result.message
    assert not re.search(r"cannot make sense", result.message)
    assert result.message[-1] in ".?!)"
    course.check(linear, answer, adjoint)
    said = capsys.readouterr()
    assert said.out.startswith("ex-test-linear: not yet. ")
    assert said.out.count("\n") == 1
    assert said.err == ""


@pytest.mark.parametrize(
    "answer",
    [
        forward,
        lambda a, b: a @ b,
        lambda *matrices: torch.linalg.multi_dot(matrices),
        lambda X, Z, scale=1: scale * (X @ Z),
        lambda X, Z: (X @ Z).requires_grad_(),
        lambda X, Z: X.clone().mul_(2) @ Z / 2,
        torch.matmul,
    ],
)
def test_right_answers_pass_whatever_they_are_called(linear, answer, capsys):
    for seed in range(5):
        result = course.examine(linear, answer, adjoint, seed=seed)
        assert result == course.Result(True, "public checks passed."), result.message
    course.check(linear, answer, adjoint)
    assert capsys.readouterr().out == "ex-test-linear: public checks passed.\n"


def test_an_object_with_call_is_a_function(linear):
    class Forward(torch.nn.Module):
        def forward(self, X, Z):
            return X @ Z

    assert course.examine(linear, Forward(), adjoint).passed
    failed = course.examine(linear, torch.nn.Identity(), adjoint)
    assert "forward is called as forward(X, Z)" in failed.message


def test_what_an_answer_prints_is_shown(linear, capsys):
    def chatty(X, Z):
        print("shape", tuple(X.shape))
        return X @ Z

    course.check(linear, chatty, adjoint)
    assert capsys.readouterr().out == "shape (7, 3)\nex-test-linear: public checks passed.\n"


def test_answers_keep_the_names_of_the_exercise(linear):
    def my_own_name(X, R):
        return None

    message = course.examine(linear, forward, my_own_name).message
    assert message == "adjoint(X, R) is None. Is a `return` missing?"


def test_interrupts_are_let_through(linear):
    def slow(X, Z):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        course.check(linear, slow, adjoint)


def test_the_line_that_failed_is_the_answers_own(linear):
    def helper(X, Z):
        raise ValueError("deep")

    def outer(X, Z):
        return helper(X, Z)

    message = course.examine(linear, outer, adjoint).message
    assert message.endswith('raised ValueError: deep (in the line `raise ValueError("deep")`).')


def test_a_fault_of_the_check_is_no_traceback_either(registry, capsys):
    @exercise("ex-test-broken")
    def broken(generator, answer):
        answer.no_such_attribute  # noqa: B018

    course.check("ex-test-broken", 3)
    assert "The check cannot make sense of this answer: AttributeError" in capsys.readouterr().out


# State


def random_numbers() -> tuple:
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()


def test_global_random_states_are_put_back(linear):
    def greedy(X, Z):
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        return X @ Z

    for answer in (greedy, lambda X, Z: torch.rand(7, 2).double(), None):
        torch.manual_seed(5), np.random.seed(5), random.seed(5)
        wanted = random_numbers()
        torch.manual_seed(5), np.random.seed(5), random.seed(5)
        course.examine(linear, answer, adjoint)
        assert random_numbers() == wanted


def test_number_type_and_gradient_mode_are_put_back(linear):
    def meddling(X, Z):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return X @ Z

    assert course.examine(linear, meddling, adjoint).passed
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_gradients_work_whatever_the_notebook_has_set(registry):
    @exercise("ex-test-gradient")
    def gradient(generator, function):
        x = torch.randn(4, generator=generator, dtype=torch.float64, requires_grad=True)
        y = tensor(run(function, x), (), "f(x)", keep_graph=True)
        close(torch.autograd.grad(y, x)[0], 2 * x, "the gradient is not 2 x")
        require(not tensor(y, (), "f(x)").requires_grad, "detached")

    with torch.no_grad():
        assert course.examine("ex-test-gradient", lambda x: (x * x).sum()).passed
        assert not torch.is_grad_enabled()


def test_the_same_seed_draws_the_same_data(linear):
    def recorder(seen):
        def recording(X, Z):
            seen.append((X, Z))
            return X @ Z + torch.rand(())

        return recording

    seen: list = []
    for seed in (3, 3, 4, None, None):
        course.examine(linear, recorder(seen), adjoint, seed=seed)
    assert torch.equal(seen[0][0], seen[1][0])
    assert not torch.equal(seen[0][0], seen[2][0])
    assert not torch.equal(seen[3][0], seen[4][0])
    messages = {course.examine(linear, recorder(seen), adjoint, seed=3).message for _ in range(3)}
    assert len(messages) == 1  # what the answer draws by itself is repeated as well


@pytest.mark.parametrize("value", ["1", "true"])
def test_the_book_draws_the_same_data_at_each_build(linear, monkeypatch, value):
    seen = []

    def recording(X, Z):
        seen.append(X)
        return X @ Z

    monkeypatch.setenv("FOURVIEWS_BOOK_BUILD", value)
    course.check(linear, recording, adjoint)
    course.check(linear, recording, adjoint)
    course.examine(linear, recording, adjoint, seed=0)
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2])


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "1", True])
def test_bad_seeds_are_refused(linear, seed):
    with pytest.raises(ValueError, match="seed: need an integer"):
        course.examine(linear, forward, adjoint, seed=seed)


# Calls that are no answers


def test_unknown_labels_name_the_nearest(linear):
    with pytest.raises(ValueError, match="no exercise 'ex-test-liner'; nearest: ex-test-linear"):
        course.check("ex-test-liner", forward, adjoint)
    with pytest.raises(ValueError, match="no exercise 7"):
        course.check(7, forward)


def test_the_number_of_answers_is_checked(linear):
    with pytest.raises(ValueError, match=r"need 2 answers \(forward, adjoint\), got 1"):
        course.check(linear, forward)
    with pytest.raises(ValueError, match="got 3"):
        course.examine(linear, forward, adjoint, adjoint)


def test_a_label_has_one_check(registry, tmp_path):
    source = (
        "from fourviews.course.checking import exercise\n"
        '@exercise("ex-test-twice")\n'
        "def one(generator, answer): ...\n"
    )
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    exec(compile(source, str(first), "exec"), {})
    with pytest.raises(ValueError, match="two checks") as caught:
        exec(compile(source, str(second), "exec"), {})
    assert str(first) in str(caught.value) and str(second) in str(caught.value)
    exec(compile(source, str(first), "exec"), {})  # the same module, loaded again
    with pytest.raises(ValueError, match="two checks"):
        exec(compile("\n" + source, str(first), "exec"), {})


@pytest.mark.parametrize("label", ["mlp-adjoint", "ex-", "ex-MLP", "ex_mlp", "", None])
def test_malformed_labels_are_refused(label):
    with pytest.raises(ValueError, match="identifier: need a label"):
        exercise(label)


def test_malformed_checks_are_refused():
    def no_generator(rng, answer): ...
    def no_answer(generator): ...
    def many(generator, *answers): ...
    def default(generator, answer=None): ...
    def keyword(generator, *, answer): ...

    for function in (no_generator, no_answer, many, default, keyword):
        with pytest.raises(ValueError, match="the check takes `generator` and then the answers"):
            exercise("ex-test-malformed")(function)
    assert "ex-test-malformed" not in checking._checks


def test_modules_are_found_by_their_names(registry, tmp_path, monkeypatch):
    folder = tmp_path / "more"
    folder.mkdir()
    text = (
        "from fourviews.course.checking import exercise\n"
        '@exercise("ex-found-by-itself")\n'
        "def check(generator, answer): ...\n"
    )
    (folder / "probe_77_found.py").write_text(text)
    (folder / "probe_without_number.py").write_text("raise RuntimeError('not a lesson')\n")
    monkeypatch.setattr(course, "__path__", [*course.__path__, str(folder)])
    try:
        assert "ex-found-by-itself" in checking.registered()
        assert course.examine("ex-found-by-itself", 1).passed
    finally:
        sys.modules.pop("fourviews.course.probe_77_found", None)


# Helpers


def failure(act) -> str:
    with pytest.raises(Failed) as caught:
        act()
    return str(caught.value)


def test_require():
    require(True, "words")
    require(torch.tensor(True), "words")
    assert failure(lambda: require(False, "words")) == "words"
    with pytest.raises(ValueError, match="words"):
        require(True, "")


def test_run_hands_over_copies():
    x = torch.zeros(3)
    array = np.zeros(3)
    module = torch.nn.Linear(2, 1)
    nested = {"a": [x, (array,)]}
    generator = torch.Generator().manual_seed(3)
    weight = module.weight.clone()

    def meddles(x, array, module, nested, generator):
        with torch.no_grad():
            module.weight.add_(1)
        torch.rand(3, generator=generator)
        assert nested["a"][0] is not nested
        return x, array, module, nested

    out = run(meddles, x, array, module, nested, generator)
    assert out[0] is not x and out[1] is not array and out[2] is not module
    assert torch.equal(module.weight, weight)
    assert torch.equal(
        torch.rand(3, generator=generator),
        torch.rand(3, generator=torch.Generator().manual_seed(3)),
    )


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(3),
        torch.full((3,), math.nan),
        torch.zeros(3, dtype=torch.bool),
        np.zeros(3),
        [torch.zeros(3), torch.zeros(2)],
        {"X": np.zeros(2)},
        (1, torch.zeros(3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_run_notices_changes_in_place(value):
    def change(value):
        while not isinstance(value, Tensor | np.ndarray):
            value = list(value.values() if isinstance(value, dict) else value)[-1]
        value[0] = 1

    run(lambda value: value, value)
    assert failure(lambda: run(change, value)) == "change(…) changes value in place: work on a copy"
    inplace = {"value": value}
    assert "in place" in failure(lambda: run(change, **inplace))


def test_run_notices_a_list_that_grew():
    values = [1, 2]
    assert "changes values in place" in failure(lambda: run(lambda x: x.append(3), values))
    assert values == [1, 2]


def test_run_shows_values_as_the_check_calls_them():
    beta, layers = 0.25, 3

    def refuses(*args, **kwargs):
        raise ValueError

    X = torch.zeros(2)
    call = failure(lambda: run(refuses, X, beta, layers, 1 / 3, "exp", X + 1, gates=X))
    assert call.startswith("refuses(X, beta, 3, 0.3333, 'exp', …, gates=X) raised ValueError")


def test_run_lets_failures_of_the_check_through():
    def calls_back(function):
        return function(3)

    def callback(value):
        raise Failed("called with three")

    assert failure(lambda: run(calls_back, callback)) == "called with three"


@pytest.mark.parametrize(
    ("got", "wanted", "hint"),
    [
        ((3, 5), (5, 3), "Is it transposed?"),
        ((2, 3, 5), (5, 3, 2), "Is it transposed?"),
        ((2, 5, 3), (2, 3, 5), "Are the last two axes swapped?"),
        ((5, 3), (None, 5), "Is it transposed?"),
        ((3, 2, 5), (2, 3, 5), "Are its axes in another order?"),
        ((4, 1), (4,), "An axis of length 1 is too many."),
        ((4,), (4, 1), "An axis of length 1 is missing."),
        ((4, 3), (4, 2), "it needs (4, 2)."),
        ((4,), (3,), "it needs (3,)."),
        ((4, 2), (None, 3), "it needs (any, 3)."),
    ],
)
def test_shapes_in_words(got, wanted, hint):
    words = failure(lambda: tensor(torch.zeros(got), wanted, "f(x)"))
    assert words.startswith("f(x) has shape (")
    assert words.endswith(hint)


def test_tensor_returns_what_fits():
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex128):
        value = torch.ones(2, 3, dtype=dtype)
        assert torch.equal(tensor(value, (2, 3), "f", dtype=dtype), value)
        assert torch.equal(tensor(value, (None, 3), "f"), value)
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not tensor(parameter, (2,), "f").requires_grad
    assert tensor(parameter, (2,), "f", keep_graph=True) is parameter


@pytest.mark.parametrize(
    "value",
    [3, 3.0, np.float32(3), np.int64(3), torch.tensor(3), torch.tensor(3.0), np.array(3.0)]
    + [Fraction(3), torch.nn.Parameter(torch.tensor(3.0))],
    ids=lambda value: type(value).__name__,
)
def test_numbers(value):
    result = number(value, "n")
    assert result == 3 and type(result) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "n is None. Is a `return` missing?"),
        (True, "n is True; it must be one number"),
        (np.bool_(False), "n is False; it must be one number"),
        (torch.tensor(True), "n is True; it must be one number"),
        ("3", "n is a text; it must be one number"),
        ([3], "n is a list; it must be one number"),
        (torch.ones(1), "n has shape (1,); it must be one number"),
        (np.ones((2, 2)), "n has shape (2, 2); it must be one number"),
        (1j, "n is a complex number; it must be one number"),
        (torch.tensor(1j), "n is a complex number; it must be one number"),
        (math.nan, "n is NaN"),
        (torch.tensor(-math.inf), "n is infinite"),
        (10**400, "n is too large for a floating-point number"),
        (len, "n is a function; it must be one number"),
        (int, "n is the class int; it must be one number"),
        (..., "n is still `...`; it must be one number"),
    ],
)
def test_what_is_no_number(value, words):
    assert failure(lambda: number(value, "n")) == words


def test_close_measures_relatively_and_absolutely():
    close(1.0, 1.0, "words")
    close(1 + 1e-9, 1.0, "words")
    close(1e-11, 0.0, "words")
    close(torch.tensor([1.0, 2.0]), np.array([1.0, 2.0]), "words")
    close(torch.tensor([True]), torch.tensor([1]), "words")
    close(1.05, 1.0, "words", rtol=0.1)
    assert failure(lambda: close(1.05, 1.0, "words")) == "words. It is off by 0.05."
    assert failure(lambda: close(1e-9, 0.0, "words")) == "words. It is off by 1e-09."
    assert failure(lambda: close(torch.ones(3), torch.zeros(3), "words")) == (
        "words. 3 of 3 entries differ, by up to 1."
    )
    assert failure(lambda: close(torch.zeros(2, 2), torch.ones(2, 2), "words")) == (
        "words. 4 of 4 entries differ, by up to 1."
    )


def test_close_never_broadcasts():
    words = failure(lambda: close(torch.zeros(3, 1), torch.zeros(3), "words"))
    assert words == "words: shape (3, 1) instead of (3,)"
    assert "shape ()" in failure(lambda: close(0.0, torch.zeros(3), "words"))


def test_close_knows_usual_faults():
    A = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert failure(lambda: close(-A, A, "w")) == "w. Only the sign is wrong."
    assert failure(lambda: close(A.T, A, "w")) == "w. It is transposed."
    assert failure(lambda: close(2 * A, A, "w")) == "w. Each entry is 2 times what it must be."
    assert failure(lambda: close(A.float(), A, "w")) == (
        "w. It agrees to the precision of float32: keep the input's type."
    )
    assert "1 of 16 entries" in failure(lambda: close(A + (A == A[0, 0]), A, "w"))
    assert "NaN or infinite" in failure(lambda: close(A * math.nan, A, "w"))
    with pytest.raises(ValueError, match="wanted: need finite numbers"):
        close(A, A / 0, "w")
    with pytest.raises(ValueError, match="words"):
        close(A, A, "")


def test_public_names_are_documented():
    for name in course.__all__:
        text = inspect.getdoc(getattr(course, name))
        assert text and ("Parameters" in text or "Attributes" in text), name


def test_examples_in_the_documentation_run():
    import doctest

    found = doctest.testmod(checking, optionflags=doctest.ELLIPSIS)
    assert found.attempted >= 10 and found.failed == 0
