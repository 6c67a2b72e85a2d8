"""Pickles of images are read; pickles that ask for anything else are not."""

import os
import pickle
import struct

import numpy as np
import pytest

from fourviews.data.files.pickles import UnsafePickleError, read_pickle

PIXELS = np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072)


def text(value):
    return b"U" + bytes([len(value)]) + value


def from_python_2(pixels, labels, key=b"labels"):
    """The opcodes that the official files hold: Python 2's strings, numpy of that time."""
    rows, columns = pixels.shape
    kind = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + text(b"|") + b"NNN" + (b"J" + struct.pack("<i", -1)) * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    array += b"\x87R(K\x01M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
    raw = pixels.tobytes()
    array += kind + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + listed + b"u."


def assert_read(value):
    assert set(value) == {b"data", b"labels"} and value[b"labels"] == [3, 1]
    assert value[b"data"].dtype == np.uint8 and np.array_equal(value[b"data"], PIXELS)


def test_python_2s_pickles():
    assert_read(read_pickle(from_python_2(PIXELS, [3, 1]), name="x"))


@pytest.mark.parametrize("protocol", range(2, 5))
@pytest.mark.parametrize("kind", [str, bytes])
def test_python_3s_pickles(protocol, kind):
    keys = ("data", "labels") if kind is str else (b"data", b"labels")
    value = dict(zip(keys, (PIXELS, [3, 1]), strict=True))
    # From protocol 3 on numpy writes Fortran's order and buffers in its own ways: bytes all the same.
    assert_read(read_pickle(pickle.dumps(value, protocol), name="x"))


class Call:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize(
    "function, arguments",
    [
        (os.system, ("touch EVIL",)),
        (eval, ("open('EVIL', 'w')",)),
        (open, ("EVIL", "w")),
        (np.fromfile, ("EVIL",)),
        (np.load, ("EVIL", None, True)),
        (getattr, ("text", "format")),
        (np.ndarray, ((2,),)),  # the class may be named, not called
        (np.dtype, ("O",)),
        (np.dtype, ("V1000000",)),
    ],
)
def test_calls_are_refused_and_not_made(tmp_path, monkeypatch, function, arguments):
    monkeypatch.chdir(tmp_path)
    for protocol in (0, 2, 4):
        content = pickle.dumps({"data": Call(function, *arguments)}, protocol)
        with pytest.raises(ValueError, match="batch_1"):
            read_pickle(content, name="batch_1")
    assert os.listdir(tmp_path) == []


def test_names_that_are_asked_for_are_said():
    with pytest.raises(UnsafePickleError, match="batch_1 is no data: it asks for posix.system"):
        read_pickle(b"cposix\nsystem\n(S'x'\ntR.", name="batch_1")
    # Persistent objects and extensions are other ways to reach code.
    for content in (b"Px\n.", b"\x80\x02\x82\x01."):
        with pytest.raises(ValueError, match="batch_1"):
            read_pickle(content, name="batch_1")


def test_objects_in_arrays_other_codecs_and_large_arrays_are_refused():
    objects = pickle.dumps({"data": np.array([1, "a"], dtype=object)}, 2)
    with pytest.raises(UnsafePickleError, match="images hold bytes"):
        read_pickle(objects, name="x")
    with pytest.raises(UnsafePickleError, match="encoded as"):
        read_pickle(b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.", name="x")
    head = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    with pytest.raises(UnsafePickleError, match="made in another way"):
        read_pickle(head + b"J\xff\xff\xff\x7f\x85U\x01b\x87R.", name="x")
    # An array that claims more rows than it brings.
    good = from_python_2(PIXELS, [3, 1])
    claimed = good.replace(b"M" + struct.pack("<H", 2), b"M" + struct.pack("<H", 60000), 1)
    assert claimed != good
    with pytest.raises(ValueError, match="x is damaged"):
        read_pickle(claimed, name="x")


def test_damaged_pickles_are_named():
    good = from_python_2(PIXELS, [3, 1])
    for bad in (b"", good[:10], good[: len(good) // 2], good[:-1], b"text"):
        with pytest.raises(ValueError, match="batch_1"):
            read_pickle(bad, name="batch_1")
    with pytest.raises(ValueError, match="holds a list"):
        read_pickle(pickle.dumps([1]), name="batch_1")


def test_numpys_own_types_are_not_changed():
    read_pickle(from_python_2(PIXELS, [3, 1]), name="x")
    assert np.dtype("u1") == np.uint8 and np.dtype("u1").byteorder == "|"
