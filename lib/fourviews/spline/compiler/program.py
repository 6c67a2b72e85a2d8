r"""Programs: what a block can compute, as a graph of exact affine forms and three kinds of atoms.

Within one block, queries, keys, values and both layers of the network are affine in what came
before, so affine forms cost nothing. What costs a layer is an *atom*:

- a variable,
- ``relu(a)``, which a hidden neuron computes, and a head as well, with the constant key and
  value 1,
- ``relu(q · k) · v``, which only a head computes.

Products and maxima are made of these without rounding beyond that of the result:
:math:`ab = a_+ b - (-a)_+ b`, of whose two terms one is zero, and
:math:`\max(a, b) = a + (b - a)_+`. Half-steps are counted: attention of block b is half-step
2b − 1, its network is half-step 2b.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ..functions.expression import Expression

ZERO, ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True, eq=False)
class Atom:
    """``kind`` is "variable" (of ``place``), "relu" of one form or "head" of three; ``token`` is the
    last token that it depends on, ``time`` the first half-step after which it is there."""

    number: int
    kind: str
    forms: tuple[Form, ...]
    place: tuple[int, int] | None
    token: int
    time: int
    non_negative: bool
    degree: int


class Form:
    """An exact affine form over atoms; equal forms of one program are one object."""

    __slots__ = ("constant", "degree", "non_negative", "number", "terms", "time", "token")

    def __init__(self, number: int, terms: tuple[tuple[Atom, Fraction], ...], constant: Fraction):
        self.number, self.terms, self.constant = number, terms, constant
        self.time = max((atom.time for atom, _ in terms), default=0)
        self.token = max((atom.token for atom, _ in terms), default=0)
        self.degree = max((atom.degree for atom, _ in terms), default=0)
        self.non_negative = constant >= 0 and all(
            atom.non_negative and value > 0 for atom, value in terms
        )

    @property
    def is_constant(self) -> bool:
        return not self.terms


class Program:
    """Builds atoms, the same only once.

    Parameters
    ----------
    tokens
        Number s of tokens.
    causal
        Whether masks hide later tokens. Then columns differ, and a head may use a product of
        query, key and value only where key or value is constant: products of three need two steps.
    networks
        Whether hidden neurons may compute; without, heads do all of it.
    """

    def __init__(self, tokens: int = 1, *, causal: bool = False, networks: bool = True):
        self.tokens, self.causal, self.networks = tokens, causal, networks
        self.arity = 2 if causal and tokens > 1 else 3
        self._atoms: dict[tuple, Atom] = {}
        self._forms: dict[tuple, Form] = {}
        self._expressions: dict[Expression, Form] = {}
        self._count = itertools.count()

    # --- forms

    def form(self, terms: dict[Atom, Fraction], constant: Fraction = ZERO) -> Form:
        kept = tuple(
            sorted(((a, v) for a, v in terms.items() if v), key=lambda pair: pair[0].number)
        )
        key = (tuple((atom.number, value) for atom, value in kept), constant)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = Form(next(self._count), kept, constant)
        return found

    def constant(self, value: Fraction) -> Form:
        return self.form({}, value)

    def combine(self, parts: Iterable[tuple[Form, Fraction]], constant: Fraction = ZERO) -> Form:
        """Σ factor · form + constant."""
        terms: dict[Atom, Fraction] = {}
        for form, factor in parts:
            constant += factor * form.constant
            for atom, value in form.terms:
                terms[atom] = terms.get(atom, ZERO) + factor * value
        return self.form(terms, constant)

    def negative(self, form: Form) -> Form:
        return self.combine([(form, -ONE)])

    def assume_non_negative(self, form: Form) -> Form:
        """The same form, known to be non-negative on the domain."""
        form.non_negative = True
        return form

    # --- atoms

    def _atom(self, kind, forms, place, token, time, non_negative, degree) -> Form:
        key = (kind, tuple(form.number for form in forms), place)
        atom = self._atoms.get(key)
        if atom is None:
            number = len(self._atoms)
            atom = Atom(number, kind, forms, place, token, time, non_negative, degree)
            self._atoms[key] = atom
        return self.form({atom: ONE})

    def variable(self, token: int, feature: int) -> Form:
        # With several tokens the first attention brings every token into every column.
        time = 0 if self.tokens == 1 else 1
        return self._atom("variable", (), (token, feature), token, time, False, 1)

    def relu(self, form: Form) -> Form:
        if form.is_constant:
            return self.constant(max(form.constant, ZERO))
        if form.non_negative:
            return form
        time = form.time + 1
        if not self.networks and time % 2 == 0:
            time += 1
        return self._atom("relu", (form,), None, form.token, time, True, form.degree)

    def head(self, query: Form, key: Form, value: Form) -> Form:
        """relu(query · key) · value."""
        forms = (query, key, value)
        time = max(form.time for form in forms)
        return self._atom(
            "head",
            forms,
            None,
            max(form.token for form in forms),
            time + 1 if time % 2 == 0 else time + 2,
            value.non_negative,
            sum(form.degree for form in forms),
        )

    # --- products and maxima

    def product(self, factors: Iterable[Form]) -> Form:
        """Product of forms, by a tree that is balanced in the half-steps at which they are there."""
        scale = ONE
        heap: list[tuple[int, int, Form]] = []
        for form in factors:
            if form.is_constant:
                scale *= form.constant
            else:
                heapq.heappush(heap, (form.time, form.number, form))
        if not scale:
            return self.constant(ZERO)
        # Huffman's rule: only the first merge may be smaller than the others.
        first = (len(heap) - 2) % (self.arity - 1) + 2 if len(heap) > 1 else 0
        while len(heap) > 1:
            taken = [heapq.heappop(heap)[2] for _ in range(first or self.arity)]
            first = 0
            result = self._small_product(taken)
            heapq.heappush(heap, (result.time, result.number, result))
        result = heap[0][2] if heap else self.constant(ONE)
        return result if scale == 1 else self.combine([(result, scale)])

    def _small_product(self, taken: list[Form]) -> Form:
        one = self.constant(ONE)
        if len(taken) == 2:
            a, b = taken
            if a is b:
                return self.head(a, a, one)
            if b.non_negative and not a.non_negative:
                a, b = b, a
            return self._signed(a, one, b, a.non_negative)
        for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            if taken[i] is taken[j]:
                return self.head(taken[i], taken[j], taken[k])
        for i, j, k in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            if taken[i].non_negative and taken[j].non_negative:
                return self.head(taken[i], taken[j], taken[k])
        return self._signed(*taken, False)

    def _signed(self, a: Form, b: Form, value: Form, non_negative: bool) -> Form:
        positive = self.head(a, b, value)
        if non_negative:
            return positive
        other = self.head(self.negative(a), b, value)
        result = self.combine([(positive, ONE), (other, -ONE)])
        return result

    def contraction(self, factors: list[list[Form]], weights: dict[tuple, Fraction]) -> Form:
        """Σ over index tuples of weight · Π factors[axis][index]: all axes but the last as
        products, the last one as a free affine combination, so that it costs no head."""
        *outer, last = factors
        groups: dict[tuple, list[tuple[Form, Fraction]]] = {}
        for index, weight in weights.items():
            if weight:
                groups.setdefault(index[:-1], []).append((last[index[-1]], weight))
        parts = []
        for index, inner in groups.items():
            forms = [axis[i] for axis, i in zip(outer, index, strict=True)]
            parts.append((self.product([*forms, self.combine(inner)]), ONE))
        return self.combine(parts)

    def maximum(self, forms: Iterable[Form]) -> Form:
        """Largest of forms, by a tree balanced in the half-steps."""
        heap = [(form.time, form.number, form) for form in dict.fromkeys(forms)]
        heapq.heapify(heap)
        while len(heap) > 1:
            a, b = (heapq.heappop(heap)[2] for _ in range(2))
            if b.is_constant:
                a, b = b, a
            rest = self.relu(self.combine([(b, ONE), (a, -ONE)]))
            result = self.combine([(a, ONE), (rest, ONE)])
            heapq.heappush(heap, (result.time, result.number, result))
        return heap[0][2]

    def of(self, expression: Expression) -> Form:
        """The form of a max-definable expression."""
        done = self._expressions
        stack = [expression]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node.kind == "variable":
                done[node] = self.variable(*node.terms)
                continue
            children = node.terms if node.kind == "maximum" else [term for term, _ in node.terms]
            missing = [child for child in children if child not in done]
            if missing:
                stack.extend(missing)
            elif node.kind == "sum":
                done[node] = self.combine(
                    [(done[term], value) for term, value in node.terms], node.constant
                )
            elif node.kind == "product":
                done[node] = self.product(
                    done[term] for term, exponent in node.terms for _ in range(exponent)
                )
            else:
                done[node] = self.maximum(done[child] for child in children)
        return done[expression]
