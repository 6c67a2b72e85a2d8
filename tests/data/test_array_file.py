"""The array in a file: pieces, interruptions, damage, a full disk, several processes, memory."""

import errno
import hashlib
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fourviews.data.features import array_file
from fourviews.data.features.array_file import Layout
from fourviews.data.files.checksums import ChecksumError

LAYOUT = Layout((10, 2, 3), np.dtype(np.float32), 4)
ABOUT = {"kind": "test", "shape": [10, 2, 3]}
WHOLE = np.random.default_rng(0).standard_normal(LAYOUT.shape).astype(np.float32)


class Rows:
    """Computes rows of an array, and remembers which."""

    def __init__(self, whole=WHOLE):
        self.whole, self.calls = whole, []

    def __call__(self, rows, done):
        self.calls.append(rows.start)
        done(rows.stop - rows.start)
        return self.whole[rows]


def write(folder, compute=None, layout=LAYOUT, about=ABOUT, **options):
    compute = compute or Rows()
    return array_file.write(folder, about, layout, compute, what="rows", **options)


def test_written_once_and_read_by_numpy_too(tmp_path):
    rows = Rows()
    assert write(tmp_path / "a", rows, note={"x": 1}) == 10 and rows.calls == [0, 4, 8]
    assert write(tmp_path / "a", rows) == 0 and len(rows.calls) == 3
    array = array_file.mapped(tmp_path / "a", LAYOUT)
    assert np.array_equal(array, WHOLE) and isinstance(array, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    assert np.array_equal(np.load(tmp_path / "a" / "array.npy", allow_pickle=False), WHOLE)
    assert array_file.read_about(tmp_path / "a") == (ABOUT, {"x": 1})
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith(".")) == ["a"]


@pytest.mark.parametrize("shape", [(0, 2, 3), (5, 0, 3), (1, 2, 3), (4, 2, 3), (8, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_any_size(tmp_path, shape, dtype):
    layout = Layout(shape, np.dtype(dtype), 4)
    values = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    assert write(tmp_path / "a", Rows(values), layout) == shape[0]
    array = array_file.mapped(tmp_path / "a", layout)
    assert np.array_equal(array, values) and not array.flags.writeable
    array_file.verify(tmp_path / "a", layout)
    assert write(tmp_path / "a", None, layout) == 0
    assert (tmp_path / "a" / "array.npy").stat().st_size == layout.n_bytes


def test_interruption_keeps_whole_pieces(tmp_path):
    def compute(rows, done):
        if rows.start == 8:
            raise KeyboardInterrupt
        return WHOLE[rows]

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "a", compute)
    assert not (tmp_path / "a").exists()
    with pytest.raises(FileNotFoundError, match="no whole array"):
        array_file.read_about(tmp_path / "a.part")
    rows = Rows()
    assert write(tmp_path / "a", rows) == 2 and rows.calls == [8]
    assert np.array_equal(array_file.mapped(tmp_path / "a", LAYOUT), WHOLE)


@pytest.mark.parametrize("harm", ["bytes", "line", "cut line", "file", "header", "about", "other"])
def test_what_an_interruption_left_is_not_trusted(tmp_path, harm):
    """After a crash of the machine: bytes that never reached the disk, a line without its end."""
    part, folder = tmp_path / "a.part", tmp_path / "a"
    with pytest.raises(KeyboardInterrupt):
        write(folder, lambda rows, done: WHOLE[rows] if rows.start < 8 else _interrupt())
    array, listed = part / "array.npy", part / "pieces.txt"
    lines = listed.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    if harm == "bytes":
        _flip(array, LAYOUT.place(1)[0] + 5)
    elif harm == "line":
        listed.write_text(lines[0] + f"1 {'0' * 64}\n")
    elif harm == "cut line":
        listed.write_text(lines[0] + lines[1][:20])
    elif harm == "file":
        os.truncate(array, LAYOUT.place(1)[0] + 7)
    elif harm == "header":
        _flip(array, 30)
    elif harm == "about":
        (part / "about.json").write_text("{")
    else:
        write(tmp_path / "b", Rows(WHOLE + 1), about={"kind": "other"})
        (part / "about.json").write_text((tmp_path / "b" / "about.json").read_text())
    rows = Rows()
    all_of_it = harm in ("header", "about", "other")
    assert write(folder, rows) == (10 if all_of_it else 6)
    assert rows.calls == ([0, 4, 8] if all_of_it else [4, 8])
    array_file.verify(folder, LAYOUT)
    assert np.array_equal(array_file.mapped(folder, LAYOUT), WHOLE)


def _interrupt():
    raise KeyboardInterrupt


def _flip(file, place):
    raw = bytearray(file.read_bytes())
    raw[place] ^= 1
    file.write_bytes(raw)


def test_one_wrong_bit_is_seen_and_its_piece_computed_again(tmp_path):
    folder = tmp_path / "a"
    write(folder)
    (folder / "derived.npz").write_bytes(b"from the tokens")
    before = array_file.mapped(folder, LAYOUT)
    _flip(folder / "array.npy", LAYOUT.place(1)[0])
    with pytest.raises(ChecksumError, match="1 of 3 pieces .* rows from 4"):
        array_file.verify(folder, LAYOUT)
    rows = Rows()
    assert write(folder, rows, verify=False) == 0  # the size is right, and more is not looked at
    with pytest.warns(UserWarning, match="damaged .1 of 3 pieces."):
        assert write(folder, rows) == 4
    assert rows.calls == [4] and np.array_equal(array_file.mapped(folder, LAYOUT), WHOLE)
    assert not (folder / "derived.npz").exists()
    assert before.shape == LAYOUT.shape  # still open where it was


@pytest.mark.parametrize("verify", [True, False])
def test_a_cut_file_is_seen_without_reading_it(tmp_path, verify):
    folder = tmp_path / "a"
    write(folder)
    os.truncate(folder / "array.npy", LAYOUT.n_bytes - 1)
    with pytest.raises(ChecksumError, match="size"):
        array_file.mapped(folder, LAYOUT)
    with pytest.raises(ChecksumError, match=f"{LAYOUT.n_bytes - 1} bytes; it needs"):
        array_file.verify(folder, LAYOUT)
    rows = Rows()
    with pytest.warns(UserWarning, match="damaged"):
        assert write(folder, rows, verify=verify) == 2
    assert rows.calls == [8] and np.array_equal(array_file.mapped(folder, LAYOUT), WHOLE)


@pytest.mark.parametrize("file", ["array.npy", "about.json", "pieces.txt"])
def test_a_missing_file_is_seen(tmp_path, file):
    folder = tmp_path / "a"
    write(folder)
    (folder / file).unlink()
    with pytest.warns(UserWarning, match="damaged"):
        assert write(folder) == 10
    array_file.verify(folder, LAYOUT)


def test_a_damaged_description(tmp_path):
    folder = tmp_path / "a"
    write(folder)
    file = folder / "about.json"
    found = json.loads(file.read_text())
    for text in ("", "[]", "{}", json.dumps({**found, "about": {"kind": "x"}})):
        file.write_text(text)
        with pytest.raises(ChecksumError, match="about.json is .*damaged"):
            array_file.read_about(folder)


def test_digest_names_the_content(tmp_path):
    for name, whole in (("a", WHOLE), ("b", WHOLE), ("c", WHOLE + 1)):
        write(tmp_path / name, Rows(whole))
    a, b, c = (array_file.content_digest(tmp_path / name, LAYOUT) for name in "abc")
    assert a == b != c
    first = hashlib.sha256(WHOLE[:4].tobytes()).hexdigest()
    assert (tmp_path / "a" / "pieces.txt").read_text().startswith(f"0 {first}\n")


def test_what_does_not_fit_is_not_kept(tmp_path):
    for wrong in (WHOLE[:, :1], WHOLE.astype(np.float64)):
        with pytest.raises(ValueError, match="rows have shape"):
            write(tmp_path / "a", Rows(wrong))
    assert not (tmp_path / "a").exists() and write(tmp_path / "a") == 10


# --- a full disk ---------------------------------------------------------------------------------


def test_room_is_looked_for_before_anything_is_computed(tmp_path, monkeypatch):
    usage = array_file.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(array_file.shutil, "disk_usage", lambda _: usage._replace(free=123))
    rows = Rows()
    needed = f"{LAYOUT.n_bytes:,} bytes more are needed and 123 are free"
    with pytest.raises(OSError, match=f"no room for rows: {needed} .*FOURVIEWS_CACHE") as caught:
        write(tmp_path / "a", rows)
    assert caught.value.errno == errno.ENOSPC and rows.calls == []
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_becomes_full(tmp_path, monkeypatch, code):
    put, written = array_file._put, []

    def fail(file, first, raw):
        if written:
            put(file, first, raw[: len(raw) // 2])  # as much as there was room for
            raise OSError(code, os.strerror(code))
        put(file, first, raw)
        written.append(first)

    monkeypatch.setattr(array_file, "_put", fail)
    with pytest.raises(OSError, match="no room for rows: .* stays and is continued"):
        write(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    monkeypatch.undo()
    rows = Rows()
    assert write(tmp_path / "a", rows) == 6 and rows.calls == [4, 8]
    assert np.array_equal(array_file.mapped(tmp_path / "a", LAYOUT), WHOLE)


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(array_file, "_put", fail)
    with pytest.raises(OSError, match="broken"):
        write(tmp_path / "a")


# --- several processes ---------------------------------------------------------------------------


def _slow(log, seconds):
    def compute(rows, done):
        with open(log, "a") as file:
            file.write(f"{rows.start} ")
        time.sleep(seconds)
        return WHOLE[rows]

    return compute


def _write_together(folder, log, barrier):
    barrier.wait(timeout=100)
    write(folder, _slow(log, 0.2))
    assert np.array_equal(array_file.mapped(folder, LAYOUT), WHOLE)


def _write_slowly(folder, log):
    write(folder, _slow(log, 2.0))


def test_two_processes_compute_each_piece_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    arguments = (tmp_path / "a", tmp_path / "log", context.Barrier(2))
    workers = [context.Process(target=_write_together, args=arguments) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert (tmp_path / "log").read_text() == "0 4 8 "


def test_a_killed_process_leaves_nothing_half_and_loses_one_piece(tmp_path):
    folder, log = tmp_path / "a", tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    worker = context.Process(target=_write_slowly, args=(folder, log))
    worker.start()
    deadline = time.monotonic() + 120
    while not (log.exists() and log.read_text().startswith("0 4 ")):
        assert worker.is_alive() and time.monotonic() < deadline
        time.sleep(0.05)
    worker.kill()  # SIGKILL, while the second piece is computed
    worker.join(timeout=60)
    assert not folder.exists() and (tmp_path / "a.part").exists()
    rows = Rows()
    assert write(folder, rows) == 6 and rows.calls == [4, 8]
    assert np.array_equal(array_file.mapped(folder, LAYOUT), WHOLE)


# --- memory --------------------------------------------------------------------------------------


def _memory(folder, sizes, answers):
    from fourviews.data.features import token_store
    from fourviews.data.features.moments import mean_and_covariance

    for n in sizes:
        peak, before = 0.0, _anonymous()
        layout = Layout((n, 196, 100), np.dtype(np.float32), 32)

        def compute(rows, done, layout=layout):
            nonlocal peak
            peak = max(peak, _anonymous())
            values = np.random.default_rng(rows.start).standard_normal(
                (rows.stop - rows.start, *layout.shape[1:]), dtype=np.float32
            )
            done(len(values))
            return values

        array_file.write(folder / str(n), {"n": n}, layout, compute, what="rows")
        array_file.verify(folder / str(n), layout)
        array = array_file.mapped(folder / str(n), layout)

        def watched(array):
            nonlocal peak
            for some in token_store.batches(array, 16):
                peak = max(peak, _anonymous())
                yield some

        count, mean, _ = mean_and_covariance(watched(array))
        pooled = token_store.token_mean(array)
        peak = max(peak, _anonymous() - pooled.nbytes / 1e6)
        assert count == n * 196 and abs(float(mean.mean() - pooled.double().mean())) < 1e-6
        answers.put((n, peak - before, layout.n_bytes / 1e6))


def _anonymous():
    """MB of memory of this process that belong to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3
    raise AssertionError("no RssAnon")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_array(tmp_path):
    """In a process of its own, whose allocator holds nothing from other tests."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    # The first is there to warm up: libraries take their buffers once.
    worker = context.Process(target=_memory, args=(tmp_path, (96, 128, 1024), answers))
    worker.start()
    _, small, large = (answers.get(timeout=200) for _ in range(3))
    worker.join(timeout=60)
    assert worker.exitcode == 0
    assert large[2] > 80 and small[2] < 11  # MB in the files
    assert large[1] - small[1] < 20 and large[1] < 40
