# %% A mean inside of the margin counts
# passes: hidden 1
# says: small says True
def small(differences, margin, quantile):
    return bool(abs(differences.mean()) <= margin)


# %% Zero inside of the interval counts
# passes: nothing
# says: small says
def small(differences, margin, quantile):
    error = differences.std(correction=1) / len(differences) ** 0.5
    return bool(abs(differences.mean()) <= quantile * error)


# %% Standard deviation instead of standard error
# passes: hidden 1, hidden 2
# says: small says False
def small(differences, margin, quantile):
    spread = differences.std(correction=1)
    return bool(differences.mean().abs() + quantile * spread <= margin)


# %% Looks at the upper end only
# passes: hidden 2
# says: small says True
def small(differences, margin, quantile):
    error = differences.std(correction=1) / len(differences) ** 0.5
    return bool(differences.mean() + quantile * error <= margin)
