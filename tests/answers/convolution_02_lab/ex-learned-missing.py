# %% Takes the pixels that are nearest to the middle
# passes: nothing
# says: others leave less
def best_pixels(kernel, heads):
    K = kernel.shape[-1]
    size = kernel.square().sum((0, 1))
    every = [(i - K // 2, j - K // 2) for i in range(K) for j in range(K)]
    every.sort(key=lambda p: p[0] ** 2 + p[1] ** 2)
    left = sum(float(size[i + K // 2, j + K // 2]) for i, j in every[heads:])
    return every[:heads], left / float(size.sum())


# %% Takes norms instead of their squares
# passes: hidden 1
# says: the error does not belong to the offsets
def best_pixels(kernel, heads):
    K = kernel.shape[-1]
    size = kernel.square().sum((0, 1)).sqrt().flatten()
    size, order = size.sort(descending=True)
    pixels = [(k // K - K // 2, k % K - K // 2) for k in order[:heads].tolist()]
    return pixels, float(size[heads:].sum() / size.sum())


# %% Returns the share that is found
# passes: nothing
# says: the error does not belong to the offsets
def best_pixels(kernel, heads):
    K = kernel.shape[-1]
    size, order = kernel.square().sum((0, 1)).flatten().sort(descending=True)
    pixels = [(k // K - K // 2, k % K - K // 2) for k in order[:heads].tolist()]
    return pixels, float(size[:heads].sum() / size.sum())


# %% Counts offsets from the first entry of the kernel
# passes: nothing
# says: different offsets from -1 to 1
def best_pixels(kernel, heads):
    K = kernel.shape[-1]
    size, order = kernel.square().sum((0, 1)).flatten().sort(descending=True)
    pixels = [(k // K, k % K) for k in order[:heads].tolist()]
    return pixels, float(size[heads:].sum() / size.sum())


# %% Leaves out the largest matrices
# passes: nothing
# says: others leave less
def best_pixels(kernel, heads):
    K = kernel.shape[-1]
    size, order = kernel.square().sum((0, 1)).flatten().sort()
    pixels = [(k // K - K // 2, k % K - K // 2) for k in order[:heads].tolist()]
    return pixels, float(size[heads:].sum() / size.sum())
