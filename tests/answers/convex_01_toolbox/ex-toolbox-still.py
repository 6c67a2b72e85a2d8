# %% A step of zero: the method stands still from the start
# passes: nothing
# says: does not converge
def counterexample(delta):
    return 20.0, 0.0, 0.0


# %% One small step for all tolerances
# passes: nothing
# says: lowers the objective by
def counterexample(delta):
    return 20.0, 0.0, 1e-12


# %% Starts exactly one half above the optimum, and then falls below
# passes: nothing
# says: above the optimum are left
def counterexample(delta):
    return 1.0, 0.0, delta / 2


# %% Takes the move of z for the fall of the objective
# passes: nothing
# says: too much
def counterexample(delta):
    return 20.0, 0.0, delta / 40


# %% A step so large that the objective rises
# passes: nothing
# says: does not converge
def counterexample(delta):
    return 20.0, 0.0, 2 + delta


# %% A step in the wrong direction
# passes: nothing
# says: does not converge
def counterexample(delta):
    return 20.0, 0.0, -delta / 800


# %% Starts so near that a hundred steps arrive if δ is large
# passes: public
def counterexample(delta):
    return 2.0, 0.0, delta / 8


# %% A step with a floor, too large for the smallest tolerances
# passes: public
def counterexample(delta):
    return 20.0, 0.0, max(delta / 800, 1e-12)
