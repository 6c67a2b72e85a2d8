"""Environment variables that switch something on or off, all read in one way."""

from __future__ import annotations

import os

_OFF = {"0", "false", "no", "off"}


def switched_on(name: str) -> bool:
    """Whether a variable is set, and to none of 0, false, no and off."""
    return _value(name) not in {"", *_OFF}


def switched_off(name: str) -> bool:
    """Whether a variable is set to 0, false, no or off."""
    return _value(name) in _OFF


def _value(name: str) -> str:
    return os.environ.get(name, "").strip().lower()
