"""The public check of the sandbox's exercise."""


def check(label, double):
    right = double(1.5) == 3.0
    print(f"{label}: public checks passed." if right else f"{label}: not yet. 1.5 is not doubled.")
