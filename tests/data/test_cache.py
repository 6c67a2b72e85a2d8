import errno
import multiprocessing
import os
import tempfile
import time

import pytest

from fourviews.data.files import cache
from fourviews.data.files.cache import atomic_write, cache_dir, locked


def test_cache_dir_follows_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path / "a" / "b"))
    assert cache_dir() == tmp_path / "a" / "b" and cache_dir().is_dir()


def test_cache_dir_has_a_place_of_its_own_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("FOURVIEWS_CACHE", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert "fourviews" in cache_dir().parts[-2:] and cache_dir().is_dir()


def test_unusable_cache_names_the_variable(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError, match="set FOURVIEWS_CACHE"):
        cache_dir()


def test_atomic_write_shows_all_or_nothing(tmp_path):
    target = tmp_path / "folder" / "file"
    with atomic_write(target) as file:
        file.write(b"old")
        assert not target.exists()
    with pytest.raises(RuntimeError, match="midway"):
        with atomic_write(target) as file:
            file.write(b"new, but not all of it")
            raise RuntimeError("midway")
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["file"]


def test_lock_that_is_not_released_is_named(tmp_path):
    target = tmp_path / "file"
    with locked(target):
        with pytest.raises(TimeoutError, match=r"delete .*\.file\.lock"):
            with locked(target, seconds=0.1):
                pass


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_to_is_named(code, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(
        OSError, match=f"{tmp_path}.*{os.strerror(code)}.*FOURVIEWS_CACHE"
    ) as caught:
        with atomic_write(tmp_path / "file"):
            pass
    assert caught.value.errno == code
    monkeypatch.setattr(cache.FileLock, "acquire", refuse)
    with pytest.raises(
        OSError, match=f"{tmp_path}.*{os.strerror(code)}.*FOURVIEWS_CACHE"
    ) as caught:
        with locked(tmp_path / "file"):
            pass
    assert caught.value.errno == code and type(caught.value) is type(OSError(code, ""))


def test_a_disk_that_becomes_full_is_told_with_the_file(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match=f"no room for {target} .No space left") as caught:
        with atomic_write(target) as file:
            file.write(b"new")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC
    assert target.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]
    with pytest.raises(OSError, match="^[^(]*broken") as caught:  # other errors stay what they are
        with atomic_write(target):
            raise OSError(errno.EIO, "broken")


def test_who_waits_is_told_what_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cache, "_SECONDS_UNTOLD", 0.05)
    for shown in ("0", "1"):
        monkeypatch.setenv("FOURVIEWS_PROGRESS", shown)
        with locked(tmp_path / "file"), pytest.raises(TimeoutError, match="for 0 s"):
            with locked(tmp_path / "file", seconds=0.2):
                pass
        told = "waiting for another process" in capsys.readouterr().err
        assert told == (shown == "1")


def _count_up(counter):
    for _ in range(20):
        with locked(counter):
            value = int(counter.read_text())
            time.sleep(0.001)  # without the lock, both processes would read the same value
            with atomic_write(counter, "w") as file:
                file.write(str(value + 1))


def test_two_processes_take_turns(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_count_up, args=(counter,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert counter.read_text() == "40"
