# %% Products of two, as in a decoder
# passes: nothing
# says: too many blocks
def blocks(tokens, degree, terms, same):
    rounds = math.ceil(math.log2(degree)) + math.ceil(math.log2(terms))
    return max(1, rounds + (tokens > 1)) + (tokens > 1 and not same)


# %% Minima and maxima one block a round, as if only networks could take them
# passes: nothing
# says: too many blocks
def blocks(tokens, degree, terms, same):
    rounds, power = 0, 1
    while power < degree:
        rounds, power = rounds + 1, 3 * power
    rounds += 2 * (terms - 1).bit_length() + (tokens > 1)
    return max(1, rounds) + (tokens > 1 and not same)


# %% Tokens need not be gathered
# passes: nothing
# says: too few blocks
def blocks(tokens, degree, terms, same):
    rounds, power = 0, 1
    while power < degree:
        rounds, power = rounds + 1, 3 * power
    rounds += (terms - 1).bit_length()
    return max(1, rounds) + (tokens > 1 and not same)


# %% Never picks the rows
# passes: nothing
# says: too few blocks
def blocks(tokens, degree, terms, same):
    rounds, power = 0, 1
    while power < degree:
        rounds, power = rounds + 1, 3 * power
    rounds += (terms - 1).bit_length() + (tokens > 1)
    return max(1, rounds)


# %% The degree looked up in a list that ends at nine
# passes: public
def blocks(tokens, degree, terms, same):
    rounds = 0 if degree == 1 else 1 if degree <= 3 else 2
    rounds += (terms - 1).bit_length() + (tokens > 1)
    return max(1, rounds) + (tokens > 1 and not same)
