# %% Counts pixels instead of weighing them
# passes: hidden 1
# says: wrong for different pixels
def least_error(kernel, pixels):
    half = kernel.shape[-1] // 2
    inside = {(i, j) for i, j in pixels if max(abs(i), abs(j)) <= half}
    return 1 - len(inside) / kernel[0, 0].numel()


# %% Takes away a pixel twice where two heads look at it
# passes: hidden 1
# says: wrong for pixels that are named twice
def least_error(kernel, pixels):
    size = kernel.square().sum((0, 1))
    half = kernel.shape[-1] // 2
    left = float(size.sum())
    for i, j in pixels:
        if max(abs(i), abs(j)) <= half:
            left -= float(size[i + half, j + half])
    return left / float(size.sum())


# %% Takes norms instead of their squares
# passes: hidden 1
# says: wrong for different pixels
def least_error(kernel, pixels):
    size = kernel.square().sum((0, 1)).sqrt()
    half = kernel.shape[-1] // 2
    left = size.clone()
    for i, j in pixels:
        if max(abs(i), abs(j)) <= half:
            left[i + half, j + half] = 0
    return float(left.sum() / size.sum())


# %% Lets offsets beyond the border wrap around
# passes: nothing
# says: wrong for some pixels outside
def least_error(kernel, pixels):
    size = kernel.square().sum((0, 1))
    n = len(size)
    left = size.clone()
    for i, j in pixels:
        left[(i + n // 2) % n, (j + n // 2) % n] = 0
    return float(left.sum() / size.sum())
