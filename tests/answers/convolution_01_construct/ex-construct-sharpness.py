# %% Takes the logarithm, which is safe but not the smallest
# passes: hidden 1
# says: is not the smallest
def sharpness(weight, span, tolerance):
    factor = float(weight.abs().double().sum((1, 2, 3)).max()) * (span[1] - span[0])
    if factor <= tolerance:
        return 0.0
    return math.log(4 * factor / tolerance)


# %% Adds up the outputs instead of taking the largest
# passes: hidden 1
# says: is not the smallest
def sharpness(weight, span, tolerance):
    factor = float(weight.abs().double().sum()) * (span[1] - span[0])
    if factor <= tolerance:
        return 0.0
    low, high = 0.0, math.log(4 * factor / tolerance) + 1
    for _ in range(80):
        middle = (low + high) / 2
        if factor * convolution.leak_bound(middle) <= tolerance:
            high = middle
        else:
            low = middle
    return high


# %% Uses the bound of one dimension
# passes: hidden 1
# says: times the tolerance
def sharpness(weight, span, tolerance):
    factor = float(weight.abs().double().sum((1, 2, 3)).max()) * (span[1] - span[0])
    if factor <= tolerance:
        return 0.0
    low, high = 0.0, math.log(4 * factor / tolerance) + 1
    for _ in range(80):
        middle = (low + high) / 2
        if factor * convolution.leak_bound(middle, dims=1) <= tolerance:
            high = middle
        else:
            low = middle
    return high


# %% Returns a tiny number where any sharpness will do
# passes: public, hidden 2
def sharpness(weight, span, tolerance):
    factor = float(weight.abs().double().sum((1, 2, 3)).max()) * (span[1] - span[0])
    allowed = tolerance / max(factor, 1e-300)
    low, high = 1e-6, max(math.log(4 / min(allowed, 1.0)), 0) + 1
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if convolution.leak_bound(middle) <= allowed:
            high = middle
        else:
            low = middle
    return high
