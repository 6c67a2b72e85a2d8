# %% Counts multiplications only
# passes: nothing
# says: the counter sees
def flops(h, w, d, heads, d_out):
    return heads * h * w * (d * d_out + (h + w) * min(d, d_out))


# %% Forms the full matrix of attention
# passes: nothing
# says: the counter sees
def flops(h, w, d, heads, d_out):
    return 2 * heads * h * w * (d * d_out + h * w * min(d, d_out))


# %% Takes the image to be square
# passes: hidden 1
# says: the counter sees
def flops(h, w, d, heads, d_out):
    return 2 * heads * h * w * (d * d_out + 2 * h * min(d, d_out))


# %% Mixes first, whatever the sizes are
# passes: nothing
# says: W_h first
def flops(h, w, d, heads, d_out):
    return 2 * heads * h * w * d * (h + w + d_out)


# %% Returns a floating-point number
# passes: public
def flops(h, w, d, heads, d_out):
    return 2.0 * heads * h * w * (d * d_out + (h + w) * min(d, d_out))
