# %% Answers the query before it reads the token's own key
# passes: nothing
# says: a token sees itself
def read_once(Q, K, V):
    memory = torch.zeros(Q.shape[1], V.shape[1], dtype=Q.dtype)
    outputs = torch.zeros_like(V)
    for i in range(len(Q)):
        outputs[i] = Q[i] @ memory / Q.shape[1] ** 0.5
        memory += torch.outer(K[i], V[i])
    return outputs


# %% Forgets the factor one over the root of d
# passes: nothing
# says: not causal linear attention
def read_once(Q, K, V):
    memory = torch.zeros(Q.shape[1], V.shape[1], dtype=Q.dtype)
    outputs = torch.zeros_like(V)
    for i in range(len(Q)):
        memory += torch.outer(K[i], V[i])
        outputs[i] = Q[i] @ memory
    return outputs


# %% Reads the whole text first and answers afterwards, so that tokens see the future
# passes: nothing
# says: later tokens are changed
def read_once(Q, K, V):
    memory = torch.zeros(Q.shape[1], V.shape[1], dtype=Q.dtype)
    for i in range(len(Q)):
        memory += torch.outer(K[i], V[i])
    return Q @ memory / Q.shape[1] ** 0.5


# %% Forms the masked matrix of all scores
# passes: hidden 1
# says: a memory of
def read_once(Q, K, V):
    return (Q @ K.T / Q.shape[1] ** 0.5).tril() @ V


# %% Replaces the memory by the newest token instead of adding to it
# passes: nothing
# says: not causal linear attention
def read_once(Q, K, V):
    outputs = torch.zeros_like(V)
    for i in range(len(Q)):
        memory = torch.outer(K[i], V[i])
        outputs[i] = Q[i] @ memory / Q.shape[1] ** 0.5
    return outputs


# %% Multiplies value by key instead of key by value
# passes: nothing
# says: read_once(Q, K, V) raised
def read_once(Q, K, V):
    memory = torch.zeros(V.shape[1], Q.shape[1], dtype=Q.dtype)
    outputs = torch.zeros_like(V)
    for i in range(len(Q)):
        memory += torch.outer(V[i], K[i])
        outputs[i] = Q[i] @ memory / Q.shape[1] ** 0.5
    return outputs


# %% Makes the memory in double precision, whatever the input is
# passes: public
def read_once(Q, K, V):
    memory = torch.zeros(Q.shape[1], V.shape[1], dtype=torch.float64)
    outputs = []
    for i in range(len(Q)):
        memory = memory + torch.outer(K[i], V[i])
        outputs.append(Q[i].double() @ memory / Q.shape[1] ** 0.5)
    return torch.stack(outputs)
