# %% Adds up powers without taking off the largest score, so that they overflow
# passes: public, hidden 2
def read(score, value):
    return torch.exp(score), torch.exp(score) * value


def merge(first, second):
    return first[0] + second[0], first[1] + second[1]


def answer(memory):
    return memory[1] / memory[0]


# %% Keeps everything that was read
# passes: hidden 1, hidden 2
# says: a memory holds
def read(score, value):
    return score[None], value[None]


def merge(first, second):
    return torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]])


def answer(memory):
    return torch.softmax(memory[0], 0) @ memory[1]


# %% Takes the plain mean of the two parts' outputs
# passes: nothing
# says: one reader gets a wrong answer
def read(score, value):
    return score, value


def merge(first, second):
    return torch.logaddexp(first[0], second[0]), (first[1] + second[1]) / 2


def answer(memory):
    return memory[1]


# %% Does not rescale the old sums when a larger score arrives
# passes: nothing
# says: larger than those before
def read(score, value):
    return score, torch.ones_like(score), value


def merge(first, second):
    top = torch.maximum(first[0], second[0])
    power = torch.exp(second[0] - top)
    return top, first[1] + power * second[1], first[2] + power * second[2]


def answer(memory):
    return memory[2] / memory[1]


# %% Keeps the larger score of two parts instead of the log-sum-exp of both
# passes: nothing
# says: one reader gets a wrong answer
def read(score, value):
    return score, value


def merge(first, second):
    w = torch.sigmoid(first[0] - second[0])
    return torch.maximum(first[0], second[0]), w * first[1] + (1 - w) * second[1]


def answer(memory):
    return memory[1]


# %% Takes the second memory for a single pair
# passes: hidden 1
# says: two readers
def read(score, value):
    return score, torch.ones_like(score), value


def merge(first, second):
    top = torch.maximum(first[0], second[0])
    old, new = torch.exp(first[0] - top), torch.exp(second[0] - top)
    return top, old * first[1] + new, old * first[2] + new * second[2]


def answer(memory):
    return memory[2] / memory[1]


# %% Adds to the first memory in place
# passes: hidden 1
# says: in place
def read(score, value):
    return score.clone(), value.clone()


def merge(first, second):
    w = torch.sigmoid(first[0] - second[0])
    first[0].copy_(torch.logaddexp(first[0], second[0]))
    first[1].mul_(w).add_((1 - w) * second[1])
    return first


def answer(memory):
    return memory[1]


# %% Takes the logarithm of a sum of powers by hand, which is infinite for large scores
# passes: public, hidden 2
def read(score, value):
    return score, value


def merge(first, second):
    w = torch.sigmoid(first[0] - second[0])
    total = torch.log(torch.exp(first[0]) + torch.exp(second[0]))
    return total, w * first[1] + (1 - w) * second[1]


def answer(memory):
    return memory[1]


# %% Packs the memory into one tensor of double precision
# passes: public, hidden 1
def read(score, value):
    return torch.cat([score[None], value]).double()


def merge(first, second):
    w = torch.sigmoid(first[0] - second[0])
    total = torch.logaddexp(first[0], second[0])
    return torch.cat([total[None], w * first[1:] + (1 - w) * second[1:]])


def answer(memory):
    return memory[1:]
