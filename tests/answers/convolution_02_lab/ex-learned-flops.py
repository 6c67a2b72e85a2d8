# %% Counts multiplications only
# passes: nothing
# says: the counter sees
def flops(h, w, d, heads, d_out):
    return heads * h * w * d * (h + w + d_out)


# %% Forms the full matrix of attention
# passes: nothing
# says: the counter sees
def flops(h, w, d, heads, d_out):
    return 2 * heads * h * w * d * (h * w + d_out)


# %% Takes the image to be square
# passes: hidden 1
# says: the counter sees
def flops(h, w, d, heads, d_out):
    return 2 * heads * h * w * d * (2 * h + d_out)


# %% Returns a floating-point number
# passes: public
def flops(h, w, d, heads, d_out):
    return 2.0 * heads * h * w * d * (h + w + d_out)
