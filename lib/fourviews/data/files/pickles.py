"""Read the pickles that CIFAR is published as, and nothing else that a pickle can hold.

A pickle may call any function. This reader knows four names, and none of them as what it is: the
array class cannot be called, arrays and types are made here, and text is encoded in one way only.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np


class UnsafePickleError(ValueError):
    """A pickle asks for something that images and labels have no need of."""


_ARRAY = object()


def _reconstruct(kind: object, shape: object, code: object) -> np.ndarray:
    if kind is not _ARRAY or shape != (0,) or code not in (b"b", "b"):
        raise UnsafePickleError("an array is made in another way than arrays are")
    return np.empty(0, dtype=np.int8)


def _dtype(code: object, align: object = 0, copy: object = 1) -> np.dtype:
    if code not in (b"u1", "u1"):
        raise UnsafePickleError(f"an array holds {code!r}; images hold bytes")
    # A copy: what the pickle says about it must not reach numpy's own.
    return np.dtype("u1", False, True)


def _encode(text: object, encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", b"latin1"):
        raise UnsafePickleError(f"a text is encoded as {encoding!r}")
    return text.encode("latin1")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ARRAY,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise UnsafePickleError(f"it asks for {module}.{name}")
        return _KNOWN[module, name]


def read_pickle(content: bytes, *, name: str) -> dict[bytes, Any]:
    """A dictionary of byte strings, numbers, lists and arrays of bytes.

    Parameters
    ----------
    content
        The pickle, written by Python 2 or 3.
    name
        What to call it in messages.

    Raises
    ------
    UnsafePickleError
        If it asks for anything else; nothing of it was run.
    ValueError
        If it is damaged or no dictionary.
    """
    try:
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
    except UnsafePickleError as error:
        raise UnsafePickleError(f"{name} is no data: {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(f"{name} is damaged ({type(error).__name__}: {error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds a {type(value).__name__}; it needs to be a dictionary")
    return {key.encode() if isinstance(key, str) else key: item for key, item in value.items()}
