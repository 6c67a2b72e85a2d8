"""Options that a public function passes on: what is unknown is refused in that function's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache


@cache
def keywords(function: Callable) -> tuple[str, ...]:
    """Names of the parameters that a function or class takes by keyword only.

    Of a class they are those of all that it is derived from, too.

    Parameters
    ----------
    function : callable
        Whose signature is read.
    """
    parts = [function]
    if isinstance(function, type):
        parts = [kind.__init__ for kind in function.__mro__ if "__init__" in vars(kind)]
    return tuple(
        dict.fromkeys(
            name
            for part in parts
            for name, parameter in inspect.signature(part).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        )
    )


def refuse_unknown(name: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError, as Python does for a parameter that there is not, for options that are not known.

    Parameters
    ----------
    name : str
        How the message names what was called.
    options, known : names
        What came, and what is taken.
    """
    known = list(known)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise TypeError(f"{name} has no option {', '.join(unknown)}; there are {', '.join(known)}")
