r"""From a program to layers: which numbers every block computes and which it carries along.

There are no residual connections, so what a later block needs has to pass through every layer: in
the attention as the value of a head with the constant weight 1, in the network as
:math:`z = z_+ - (-z)_+`. What is carried are either the atoms computed so far or the affine forms
of them that are still needed, whichever are fewer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from .program import ONE, ZERO, Atom, Form, Program

Row = dict[int, Fraction]  # a sparse row: register → coefficient


@dataclass
class Affine:
    """Exact sparse affine map: one row and one constant a result."""

    rows: list[Row] = field(default_factory=list)
    constants: list[Fraction] = field(default_factory=list)

    def add(self, row: Row, constant: Fraction = ZERO) -> int:
        self.rows.append({column: value for column, value in row.items() if value})
        self.constants.append(constant)
        return len(self.rows) - 1


@dataclass
class Heads:
    """Heads of one attention module, each with one-dimensional queries and keys.

    ``query`` and ``key`` have one row a head, ``value`` one row a value; ``head_of_value`` says
    whose it is. Offsets are the same for all tokens, except where ``token`` is not None: then
    ``gate`` says which of ``"key"`` or ``"value"``, being constant, is zero at all other tokens.
    ``query_token`` is the only token whose query is not zero, None for all.
    """

    query: Affine = field(default_factory=Affine)
    key: Affine = field(default_factory=Affine)
    value: Affine = field(default_factory=Affine)
    head_of_value: list[int] = field(default_factory=list)
    token: list[int | None] = field(default_factory=list)
    gate: list[str] = field(default_factory=list)
    query_token: list[int | None] = field(default_factory=list)

    def add(self, query, key, values, *, token, gate="key", query_token=None) -> list[int]:
        head = self.query.add(*query)
        self.key.add(*key)
        self.token.append(token)
        self.gate.append(gate)
        self.query_token.append(query_token)
        self.head_of_value += [head] * len(values)
        return [self.value.add(*value) for value in values]


@dataclass
class Layer:
    """One block: attention, then the network ``output(relu(hidden(·)))``."""

    heads: Heads
    hidden: Affine
    output: Affine


CONSTANT_ONE: tuple[Row, Fraction] = ({}, ONE)


@dataclass(frozen=True)
class Carried:
    """A combination of registers that passes through a layer."""

    row: Row
    constant: Fraction
    token: int
    non_negative: bool


class _State:
    """Registers after a half-step, and every pending form as a combination of them."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.width = 0
        self.tokens: list[int] = []
        self.non_negative: list[bool] = []
        self.rows: dict[int, Row] = {}  # form's number → known part
        self.constants: dict[int, Fraction] = {}  # form's number → what is to be added yet

    def new(self, token: int, non_negative: bool) -> int:
        self.tokens.append(token)
        self.non_negative.append(non_negative)
        self.width += 1
        return self.width - 1

    def affine(self, form: Form) -> tuple[Row, Fraction]:
        return self.rows[form.number], self.constants[form.number]


def schedule(program: Program, outputs: list[list[Form]], features: int) -> list[Layer]:
    """Layers that compute ``outputs[c][r]``, feature r of token c.

    A single row of outputs with several tokens means: the same in every token.
    """
    s = program.tokens
    select = s > 1 and len(outputs) > 1
    last = max(form.time for row in outputs for form in row)
    blocks = max(1, -(-last // 2))
    atoms, consumers = _reachable(outputs)
    at: dict[int, list[Atom]] = {}
    for atom in atoms:
        at.setdefault(atom.time, []).append(atom)
    forms = {form.number: form for form, _ in consumers.values()}
    used_until = {number: time for number, (_, time) in consumers.items()}
    final = {form.number for row in outputs for form in row}
    end = 2 * blocks + 1

    state = _State(0)
    state.constants = {number: form.constant for number, form in forms.items()}
    if s == 1:
        for _ in range(features):
            state.new(0, False)
        for number, form in forms.items():
            state.rows[number] = {
                atom.place[1]: value for atom, value in form.terms if atom.kind == "variable"
            }
    else:
        state.rows = {number: {} for number in forms}

    layers = []
    for block in range(1, blocks + 1):
        heads = Heads()
        step = 2 * block - 1
        new = _State(step)
        made: dict[int, int] = {}
        if block == 1 and s > 1:
            _gather(heads, new, made, at.get(1, []), s, features, program.causal)
        still = [f for n, f in forms.items() if (end if n in final else used_until[n]) > step]
        fresh = [atom for atom in at.get(step, []) if atom.kind != "variable"]
        fused = _attend(heads, state, new, made, program, fresh, still)
        _carry_heads(heads, _carry(state, new, still, made), program.causal)
        for number, row in fused.items():
            new.rows[number].update(row)
        state = new

        hidden, output = Affine(), Affine()
        step += 1
        new = _State(step)
        made = {}
        for atom in at.get(step, []):
            neuron = hidden.add(*state.affine(atom.forms[0]))
            output.add({neuron: ONE})
            made[atom.number] = new.new(atom.token, True)
        if block == blocks and not select:
            _finish(hidden, output, state, new, made, outputs[0])
            layers.append(_filled(heads, hidden, output))
            break
        still = [f for n, f in forms.items() if (end if n in final else used_until[n]) > step]
        for part in _carry(state, new, still, made):
            output.add(_identity(hidden, part.row, part.constant, part.non_negative))
        layers.append(_filled(heads, hidden, output))
        state = new
    if select:
        layers.append(_selection(state, outputs))
    return layers


def _filled(heads: Heads, hidden: Affine, output: Affine) -> Layer:
    """The layer; a constant function needs neither head nor neuron, but every layer has one."""
    if not heads.token:
        heads.add(CONSTANT_ONE, CONSTANT_ONE, [({}, ZERO)], token=0)
    if not hidden.rows:
        hidden.add({})
    return Layer(heads, hidden, output)


def _reachable(outputs):
    """All atoms below the outputs, and every form that is read, with its last reading time."""
    atoms: dict[int, Atom] = {}
    consumers: dict[int, tuple[Form, int]] = {}
    stack = [form for row in outputs for form in row]
    for form in stack:
        consumers[form.number] = (form, 0)
    while stack:
        form = stack.pop()
        for atom, _ in form.terms:
            if atom.number in atoms:
                continue
            atoms[atom.number] = atom
            for inner in atom.forms:
                known = consumers.get(inner.number)
                consumers[inner.number] = (inner, max(atom.time, known[1] if known else 0))
                stack.append(inner)
    return sorted(atoms.values(), key=lambda atom: atom.number), consumers


def _gather(heads, new, made, atoms, s, features, causal):
    """One head a token: constant query, a key that is 1 at that token only, its features as value."""
    wanted: dict[int, list[Atom]] = {}
    for atom in atoms:
        if atom.kind == "variable":
            wanted.setdefault(atom.place[0], []).append(atom)
    for token in sorted(wanted):
        values = [({atom.place[1]: ONE}, ZERO) for atom in wanted[token]]
        heads.add(CONSTANT_ONE, CONSTANT_ONE, values, token=token)
        for atom in wanted[token]:
            made[atom.number] = new.new(token if causal else 0, False)


def _attend(heads, state, new, made, program, atoms, pending) -> dict[int, Row]:
    """Heads of new atoms: those with the same score are one head with several values.

    Where fewer combinations of a head's values are needed than it has, it computes those instead.
    Returns for every form what it gets from such combinations.
    """
    groups: dict[tuple, list[tuple[Atom, tuple[Row, Fraction]]]] = {}
    scores: dict[tuple, tuple] = {}
    for atom in atoms:
        q, k, value, token, gate = _head(state, program, atom)
        key = (_frozen(q), _frozen(k), token, gate)
        scores[key] = (q, k, token, gate)
        groups.setdefault(key, []).append((atom, value))
    fused: dict[int, Row] = {}
    readers_of: dict[int, list[tuple[int, Fraction]]] = {}  # atom → places in pending, factors
    for place, form in enumerate(pending):
        for atom, factor in form.terms:
            readers_of.setdefault(atom.number, []).append((place, factor))
    for key, members in groups.items():
        q, k, token, gate = scores[key]
        wanted: dict[tuple, list[Form]] = {}
        if len(members) > 1:
            found: dict[int, list[Fraction]] = {}
            for number, (atom, _) in enumerate(members):
                for place, factor in readers_of.get(atom.number, ()):
                    found.setdefault(place, [ZERO] * len(members))[number] = factor
            for place in sorted(found):
                wanted.setdefault(tuple(found[place]), []).append(pending[place])
        if wanted and len(wanted) < len(members):
            values = []
            for factors, readers in wanted.items():
                row: Row = {}
                constant = ZERO
                for factor, (_, (part, offset)) in zip(factors, members, strict=True):
                    constant += factor * offset
                    for register, entry in part.items():
                        row[register] = row.get(register, ZERO) + factor * entry
                values.append((row, constant))
                register = new.new(max(atom.token for atom, _ in members), False)
                for form in readers:
                    fused.setdefault(form.number, {})[register] = ONE
        else:
            values = [value for _, value in members]
            for atom, _ in members:
                made[atom.number] = new.new(atom.token, atom.non_negative)
        heads.add(q, k, values, token=token, gate=gate)
    return fused


def _frozen(affine: tuple[Row, Fraction]) -> tuple:
    return tuple(sorted(affine[0].items())), affine[1]


def _head(state: _State, program: Program, atom: Atom):
    """Query, key, value, the token that they are read at, and what is zero elsewhere."""
    query, key, value = atom.forms if atom.kind == "head" else (atom.forms[0], None, None)
    q = state.affine(query)
    k = CONSTANT_ONE if key is None else state.affine(key)
    v = CONSTANT_ONE if value is None else state.affine(value)
    token = atom.token if program.causal else 0
    if program.tokens == 1 or not k[0]:
        return q, k, v, token, "key"
    if not v[0]:
        return q, k, v, token, "value"
    # All columns agree and all are summed.
    share = Fraction(1, program.tokens)
    return q, k, ({r: share * x for r, x in v[0].items()}, share * v[1]), None, "key"


def _carry(state: _State, new: _State, pending: list[Form], made: dict[int, int]) -> list[Carried]:
    """Choose what to carry, give it registers in ``new``, and rewrite the pending forms."""
    parts: dict[tuple, Carried] = {}
    single: dict[tuple, Carried] = {}
    part_of: dict[int, tuple] = {}
    for form in pending:
        row = state.rows[form.number]
        for register in row:
            single[register,] = _single(state, register)
        if len(row) == 1:  # a multiple of a register is that register
            key = (next(iter(row)),)
            parts[key] = single[key]
        elif row:
            # What is known of a form holds for its part once all of it is there, constant and all.
            whole = form.non_negative and form.time <= state.time
            constant = state.constants[form.number] if whole else ZERO
            key = (tuple(sorted(row.items())), constant)
            sign = whole or all(v > 0 and state.non_negative[r] for r, v in row.items())
            parts[key] = Carried(row, constant, max(state.tokens[r] for r in row), sign)
        else:
            continue
        part_of[form.number] = key

    chosen = parts if _cost(parts) < _cost(single) else single
    ordered = sorted(chosen.items(), key=lambda item: item[1].token)
    register_of = {key: new.new(part.token, part.non_negative) for key, part in ordered}
    for form in pending:
        row, constant = state.rows[form.number], state.constants[form.number]
        result: Row = {}
        if chosen is parts and row:
            key = part_of[form.number]
            result[register_of[key]] = row[key[0]] if len(row) == 1 else ONE
            constant -= chosen[key].constant
        else:
            for register, value in row.items():
                result[register_of[register,]] = value
        for atom, value in form.terms:
            if atom.number in made:
                result[made[atom.number]] = value
        new.rows[form.number], new.constants[form.number] = result, constant
    return [part for _, part in ordered]


def _single(state: _State, register: int) -> Carried:
    return Carried({register: ONE}, ZERO, state.tokens[register], state.non_negative[register])


def _cost(parts: dict[tuple, Carried]) -> int:
    return sum(1 if part.non_negative else 2 for part in parts.values())


def _carry_heads(heads: Heads, carried: list[Carried], causal: bool) -> None:
    """One head for all that is carried; with masks one for each token that it belongs to."""
    groups: dict[int, list[Carried]] = {}
    for part in carried:  # in the order of tokens
        groups.setdefault(part.token if causal else 0, []).append(part)
    for token, group in groups.items():
        values = [(part.row, part.constant) for part in group]
        heads.add(CONSTANT_ONE, CONSTANT_ONE, values, token=token)


def _identity(hidden: Affine, row: Row, constant: Fraction, non_negative: bool) -> Row:
    positive = hidden.add(row, constant)
    if non_negative:
        return {positive: ONE}
    negative = hidden.add({r: -v for r, v in row.items()}, -constant)
    return {positive: ONE, negative: -ONE}


def _finish(hidden, output, state, new, made, forms: list[Form]) -> None:
    """Outputs of the last network: new neurons times their coefficients plus what was there."""
    output.rows.clear()
    output.constants.clear()
    for form in forms:
        row: Row = {}
        for atom, value in form.terms:
            if atom.number in made:
                row[made[atom.number]] = value
        known = state.rows[form.number]
        if known:
            for neuron, sign in _identity(hidden, known, ZERO, False).items():
                row[neuron] = sign
        output.add(row, state.constants[form.number])


def _selection(state: _State, outputs: list[list[Form]]) -> Layer:
    """Token c reads its own results: query and key are 1 at token c only."""
    heads, hidden, output = Heads(), Affine(), Affine()
    rows: list[Row] = [{} for _ in outputs[0]]
    for token, forms in enumerate(outputs):
        values = [state.affine(form) for form in forms]
        for row, place in zip(
            rows,
            heads.add(CONSTANT_ONE, CONSTANT_ONE, values, token=token, query_token=token),
            strict=True,
        ):
            row[place] = ONE
    for row in rows:
        output.add(_identity(hidden, row, ZERO, False))
    return Layer(heads, hidden, output)


def network_layers(program: Program, outputs: list[Form], features: int) -> list[Affine]:
    """The layers of a plain ReLU network: one hidden layer a half-step, then the output layer."""
    atoms, consumers = _reachable([outputs])
    forms = {form.number: form for form, _ in consumers.values()}
    used_until = {number: time for number, (_, time) in consumers.items()}
    final = {form.number for form in outputs}
    last = max(form.time for form in outputs)
    state = _State(0)
    state.constants = {number: form.constant for number, form in forms.items()}
    for _ in range(features):
        state.new(0, False)
    for number, form in forms.items():
        state.rows[number] = {
            atom.place[1]: value for atom, value in form.terms if atom.kind == "variable"
        }
    layers, output = [], Affine()
    for j in range(features):
        output.add({j: ONE})
    for step in range(1, last + 1):
        hidden, new_output, new, made = Affine(), Affine(), _State(step), {}
        for atom in atoms:
            if atom.time == step:
                neuron = hidden.add(*state.affine(atom.forms[0]))
                new_output.add({neuron: ONE})
                made[atom.number] = new.new(0, True)
        still = [f for n, f in forms.items() if n in final or used_until[n] > step]
        for part in _carry(state, new, still, made):
            new_output.add(_identity(hidden, part.row, part.constant, part.non_negative))
        layers.append(_compose(hidden, output))
        output, state = new_output, new
    result = Affine()
    for form in outputs:
        result.add(*state.affine(form))
    return [*layers, _compose(result, output)]


def _compose(after: Affine, before: Affine) -> Affine:
    result = Affine()
    for row, constant in zip(after.rows, after.constants, strict=True):
        total: Row = {}
        for j, factor in row.items():
            constant += factor * before.constants[j]
            for column, value in before.rows[j].items():
                total[column] = total.get(column, ZERO) + factor * value
        result.add(total, constant)
    return result
