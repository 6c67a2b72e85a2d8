# %% One unit of attention counted as d + c
# passes: nothing
# says: attention
def units(budget, s, d, c, B):
    weights = {
        "mlp": d + c,
        "attention": d + c,
        "mixer": s * s + d * c,
        "fno": s * d + c,
        "block_fno": (s * d + c) // B,
    }
    return {head: budget // one for head, one in weights.items()}


# %% The blocks forgotten
# passes: nothing
# says: block_fno
def units(budget, s, d, c, B):
    weights = {
        "mlp": d + c,
        "attention": d * d + d * c,
        "mixer": s * s + d * c,
        "fno": s * d + c,
        "block_fno": s * d + c,
    }
    return {head: budget // one for head, one in weights.items()}


# %% Rounds to the nearest number
# passes: nothing
# says: more weights than the budget
def units(budget, s, d, c, B):
    weights = {
        "mlp": d + c,
        "attention": d * d + d * c,
        "mixer": s * s + d * c,
        "fno": s * d + c,
        "block_fno": (s * d + c) // B,
    }
    return {head: -(-budget // one) for head, one in weights.items()}


# %% Stays strictly below the budget
# passes: public
def units(budget, s, d, c, B):
    weights = {
        "mlp": d + c,
        "attention": d * d + d * c,
        "mixer": s * s + d * c,
        "fno": s * d + c,
        "block_fno": (s * d + c) // B,
    }
    return {
        head: budget // one - (budget % one == 0)
        for head, one in weights.items()
    }
