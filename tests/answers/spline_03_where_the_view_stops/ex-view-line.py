# %% Adds the next piece itself instead of the change
# passes: nothing
# says: beyond the first knot
def as_expression(knots, pieces, x):
    def polynomial(coefficients):
        return sum((a * x**k for k, a in enumerate(coefficients)), 0 * x)

    total = polynomial(pieces[0])
    for t, piece in zip(knots, pieces[1:], strict=True):
        total = total + polynomial(piece) * spline.maximum(x - t, 0)
    return total


# %% Returns the first piece alone
# passes: nothing
# says: beyond the first knot
def as_expression(knots, pieces, x):
    return sum((a * x**k for k, a in enumerate(pieces[0])), 0 * x)


# %% Divides, but does not look at the remainder
# passes: public, hidden 2
def as_expression(knots, pieces, x):
    total = sum((a * x**k for k, a in enumerate(pieces[0])), 0 * x)
    for i, t in enumerate(knots):
        left, right = pieces[i], pieces[i + 1]
        size = max(len(left), len(right))
        a = [0] * (size - len(right)) + list(reversed(right))
        b = [0] * (size - len(left)) + list(reversed(left))
        carry, quotient = 0, []
        for p, q in zip(a, b, strict=True):
            carry = p - q + t * carry
            quotient.append(carry)
        quotient.pop()
        part = sum((c * x**k for k, c in enumerate(reversed(quotient))), 0 * x)
        total = total + part * spline.maximum(x - t, 0)
    return total


# %% Compares the remainder with a tolerance
# passes: public, hidden 2
def as_expression(knots, pieces, x):
    total = sum((a * x**k for k, a in enumerate(pieces[0])), 0 * x)
    for i, t in enumerate(knots):
        left, right = pieces[i], pieces[i + 1]
        size = max(len(left), len(right))
        a = [0] * (size - len(right)) + list(reversed(right))
        b = [0] * (size - len(left)) + list(reversed(left))
        carry, quotient = 0, []
        for p, q in zip(a, b, strict=True):
            carry = p - q + t * carry
            quotient.append(carry)
        if abs(float(quotient.pop())) > 1e-9:
            raise ValueError("the pieces do not meet")
        part = sum((c * x**k for k, c in enumerate(reversed(quotient))), 0 * x)
        total = total + part * spline.maximum(x - t, 0)
    return total
