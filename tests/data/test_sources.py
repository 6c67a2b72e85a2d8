"""Where a data set is looked for, in which order, and what is said when it is nowhere."""

import hashlib
import io
import tarfile

import pytest

from fourviews.data import ChecksumError, DataNotFoundError
from fourviews.data.files.download import DownloadError
from fourviews.data.sources import Archive, DataSet, Substitute, locate


def tar(text):
    """A tar archive of one file, toy/text, as bytes that are the same every time."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        member = tarfile.TarInfo("toy/text")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    return raw.getvalue()


OFFICIAL = tar("official")


def toy(shipped=None, **options):
    archive = Archive(
        file="toy.tar",
        urls=("http://127.0.0.1:9/toy.tar",),
        checksum="sha256:" + hashlib.sha256(OFFICIAL).hexdigest(),
        n_bytes=len(OFFICIAL),
        max_bytes=1000,
    )
    substitute = Substitute(package="toy-package", find=lambda: shipped, extra="toys")
    return DataSet(
        **{
            "name": "Toy data",
            "folder": "toy",
            "archive": archive,
            "subset": "toy-subset.tar",
            "substitute": substitute,
            **options,
        }
    )


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """FOURVIEWS_DATA and the cache, both empty, and no network."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FOURVIEWS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FOURVIEWS_OFFLINE", "1")
    monkeypatch.delenv("FOURVIEWS_BOOK_BUILD", raising=False)
    return tmp_path


def text(source):
    return (source.path / "text").read_text()


def test_order_of_the_places(folders, monkeypatch):
    data = folders / "data"
    shipped = folders / "shipped"
    shipped.mkdir()
    (shipped / "text").write_text("shipped")
    (data / "toy").mkdir()
    (data / "toy" / "text").write_text("folder")
    (data / "toy.tar").write_bytes(OFFICIAL)
    (data / "toy-subset.tar").write_bytes(tar("subset"))

    found = locate(toy(shipped))
    assert (found.kind, text(found)) == ("folder", "folder")

    (data / "toy" / "text").unlink()
    (data / "toy").rmdir()
    found = locate(toy(shipped))
    assert (found.kind, text(found)) == ("archive", "official")
    assert folders / "cache" in found.path.parents  # nothing is unpacked into the reader's folder

    (data / "toy.tar").unlink()
    found = locate(toy(shipped))
    assert (found.kind, text(found)) == ("subset", "subset")
    assert locate(toy(shipped), source="official").kind == "cache"

    (data / "toy-subset.tar").unlink()
    found = locate(toy(shipped))
    assert (found.kind, text(found)) == ("cache", "official")
    assert locate(toy(shipped), source="package").kind == "substitute"

    monkeypatch.setenv("FOURVIEWS_CACHE", str(folders / "another-cache"))
    with pytest.warns(UserWarning, match="Using what toy-package ships instead"):
        found = locate(toy(shipped))
    assert (found.kind, text(found)) == ("substitute", "shipped")
    assert str(found) == "Toy data: shipped by the package toy-package"


@pytest.mark.parametrize("value", ["1", "true"])
def test_built_pages_print_the_source_instead_of_a_warning(folders, monkeypatch, recwarn, value):
    monkeypatch.setenv("FOURVIEWS_BOOK_BUILD", value)
    assert locate(toy(folders)).kind == "substitute" and not recwarn.list


def test_what_stands_in_is_called_by_its_own_name(folders):
    substitute = Substitute("toy-package", lambda: folders, "toys", "Marbles", "ask a friend")
    with pytest.warns(UserWarning, match="toy-package"):
        found = locate(toy(substitute=substitute))
    assert str(found) == "Marbles: shipped by the package toy-package"
    with pytest.raises(DataNotFoundError, match="toy-package ships: ask a friend"):
        locate(toy(substitute=Substitute("toy-package", lambda: None, "x", "", "ask a friend")))


def test_skipped_entries_are_checked_all_the_same(folders):
    from fourviews.data.files.extraction import UnsafeArchiveError, extract

    raw = folders / "skip.tar"
    with tarfile.open(raw, "w") as archive:
        for name in ("toy/text", "toy/extra/a", "toy/extra/b"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    place = extract(raw, folders / "place", max_bytes=1, skip=("toy/extra/",))
    assert [p.name for p in place.rglob("*") if p.is_file()] == ["text"]
    with tarfile.open(raw, "a") as archive:
        archive.addfile(tarfile.TarInfo("toy/extra/../../../evil"))
    with pytest.raises(UnsafeArchiveError, match="leads out"):
        extract(raw, folders / "other", max_bytes=1, skip=("toy/extra/",))


def test_subset_may_have_a_folder_of_another_name(folders):
    (folders / "data" / "toy-subset.tar").write_bytes(tar("subset"))
    found = locate(toy(folder="official-toy", subset_folder="toy"))
    assert found.kind == "subset" and text(found) == "subset"


def test_download_is_used_and_kept(folders, monkeypatch):
    calls = []

    def fake_download(urls, target, *, checksum, n_bytes):
        calls.append(urls)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(OFFICIAL)
        return target

    monkeypatch.setattr("fourviews.data.sources.download", fake_download)
    assert [locate(toy()).kind for _ in range(2)] == ["download", "cache"]
    assert calls == [toy().archive.urls]
    assert text(locate(toy())) == "official"


def test_large_sets_are_downloaded_only_when_asked_for(folders, monkeypatch):
    def no_download(*_, **__):
        raise DownloadError("asked")

    monkeypatch.setattr("fourviews.data.sources.download", no_download)
    with pytest.raises(DataNotFoundError) as refusal:
        locate(toy(automatic_download=False))
    assert "asked" not in str(refusal.value) and 'source="official"' in str(refusal.value)
    with pytest.raises(DataNotFoundError, match="asked"):
        locate(toy(automatic_download=False), source="official")


def test_changed_subset_is_unpacked_again(folders):
    for content in ("first", "second"):
        (folders / "data" / "toy-subset.tar").write_bytes(tar(content))
        assert text(locate(toy())) == content


def test_archive_with_another_content_is_not_taken_for_official(folders):
    (folders / "data" / "toy.tar").write_bytes(tar("forged"))
    with pytest.raises(ChecksumError, match="remove it from FOURVIEWS_DATA"):
        locate(toy())


def test_subset_file_is_not_accepted_in_the_cache(folders):
    (folders / "cache" / "toy-data").mkdir(parents=True)
    (folders / "cache" / "toy-data" / "toy-subset.tar").write_bytes(tar("subset"))
    with pytest.raises(DataNotFoundError):
        locate(toy())


def test_nothing_there_names_every_way_out(folders):
    with pytest.raises(DataNotFoundError) as refusal:
        locate(toy())
    message = str(refusal.value)
    assert "FOURVIEWS_OFFLINE" in message  # why the download failed
    for way in (
        "fourviews[toys]",
        "connect to the network",
        "FOURVIEWS_DATA",
        "toy.tar",
        "toy-subset.tar",
    ):
        assert way in message, way


def test_bad_settings_are_named(folders, monkeypatch):
    with pytest.raises(ValueError, match="source is 'stanford'"):
        locate(toy(), source="stanford")
    monkeypatch.setenv("FOURVIEWS_DATA", str(folders / "missing"))
    with pytest.raises(ValueError, match="FOURVIEWS_DATA is"):
        locate(toy())
