# %% An interval of the values, not of the differences
# passes: nothing
# says: not the quantile times the standard error
def paired(values, others, quantile):
    d = values - others
    return float(d.mean()), float(quantile * values.std() / len(d) ** 0.5)


# %% Adds the variances of both means, as if the runs were independent
# passes: nothing
# says: not the quantile times the standard error
def paired(values, others, quantile):
    error = (values.var() + others.var()) / len(values)
    return float((values - others).mean()), float(quantile * error.sqrt())


# %% Divides by m where m − 1 belongs
# passes: hidden 1
# says: not the quantile times the standard error
def paired(values, others, quantile):
    d = values - others
    error = d.std(correction=0) / len(d) ** 0.5
    return float(d.mean()), float(quantile * error)


# %% The difference with the wrong sign
# passes: hidden 1
# says: the mean difference is wrong
def paired(values, others, quantile):
    d = others - values
    return float(d.mean()), float(quantile * d.std() / len(d) ** 0.5)
