"""Read a JSON array that is too large for memory, one object after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

_PIECE = 1 << 20


def array_of_objects(file: Path, *, max_object: int = 1 << 26) -> Iterator[dict[str, Any]]:
    """The objects of a JSON array, in order.

    Parameters
    ----------
    file
        UTF-8 text, ``[{…}, {…}, …]``.
    max_object
        The most characters that one object may have.

    Yields
    ------
    dict

    Raises
    ------
    ValueError
        If the file is missing, no array of objects, damaged, or an object is too large; the message
        names the file.
    """
    if not file.is_file():
        raise ValueError(f"the folder {file.parent.name} needs to hold {file.name}")
    decoder = json.JSONDecoder(parse_constant=_refuse)
    buffer, place, end, wanted = "", 0, False, _PIECE
    expected = "["
    with open(file, encoding="utf-8") as text:
        while True:
            if place >= len(buffer) and not end:
                buffer, place = text.read(_PIECE), 0
                end = not buffer
            rest = len(buffer) - place
            while place < len(buffer) and buffer[place] in " \t\r\n":
                place += 1
            if place == len(buffer):
                if end:
                    if expected == "nothing":
                        return
                    raise ValueError(f"{file.name} is damaged: it ends too early")
                continue
            sign = buffer[place]
            if sign == "[" and expected == "[":
                expected, place = "first", place + 1
            elif sign == "]" and expected in ("first", "comma"):
                expected, place = "nothing", place + 1
            elif sign == "," and expected == "comma":
                expected, place = "object", place + 1
            elif sign == "{" and expected in ("first", "object"):
                try:
                    value, place = decoder.raw_decode(buffer, place)
                except RecursionError:
                    raise ValueError(f"{file.name} is nested too deeply") from None
                except json.JSONDecodeError as error:
                    if rest > max_object:
                        raise ValueError(
                            f"{file.name} holds an object of more than {max_object} characters,"
                            " or is damaged"
                        ) from error
                    # Cut off, perhaps: twice as much each time, so that the work stays linear.
                    more = text.read(wanted)
                    if not more:
                        raise ValueError(f"{file.name} is damaged ({error.msg})") from error
                    buffer, place, wanted = buffer[place:] + more, 0, 2 * wanted
                    continue
                except ValueError as error:
                    raise ValueError(f"{file.name}: {error}") from error
                expected, wanted = "comma", _PIECE
                yield value
            else:
                raise ValueError(
                    f"{file.name} has {sign!r} where it needs an array of objects, [{{…}}, …]"
                )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
