"""Archives that try to write where they must not."""

import io
import stat
import tarfile
import zipfile

import pytest

from fourviews.data.files.extraction import UnsafeArchiveError, extract

LIMIT = 1_000_000
KINDS = ("tar", "tar.gz", "zip")


def build(path, files):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files:
                archive.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
            for name, content in files:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def assert_refused(archive, tmp_path, message, error=UnsafeArchiveError, **options):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=message):
        extract(archive, tmp_path / "target" / "data", **{"max_bytes": LIMIT, **options})
    left = {path for path in tmp_path.rglob("*") if path not in before}
    assert left <= {tmp_path / "target"}  # the parent folder, empty


@pytest.mark.parametrize("kind", KINDS)
def test_plain_archives(tmp_path, kind):
    files = [("data/a.txt", b"a" * 10), ("./data/deep/b.txt", b""), ("c.txt", b"c" * 400_000)]
    archive = build(tmp_path / f"archive.{kind}", files)
    target = extract(archive, tmp_path / "target", max_bytes=LIMIT)
    got = {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}
    assert got == {"data/a.txt": b"a" * 10, "data/deep/b.txt": b"", "c.txt": b"c" * 400_000}
    assert stat.S_IMODE(target.stat().st_mode) & 0o500 == 0o500
    with pytest.raises(FileExistsError):
        extract(archive, target, max_bytes=LIMIT)
    some = extract(archive, tmp_path / "some", max_bytes=20, members=["data/a.txt"])
    assert [p.name for p in some.rglob("*") if p.is_file()] == ["a.txt"]


def test_folder_entries_and_tars_that_end_in_a_zip(tmp_path):
    inner = build(tmp_path / "inner.zip", [("x", b"x")]).read_bytes()
    with tarfile.open(tmp_path / "outer.tar", "w") as archive:
        folder = tarfile.TarInfo("data")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        member = tarfile.TarInfo("data/inner.zip")
        member.size = len(inner)
        archive.addfile(member, io.BytesIO(inner))
    target = extract(tmp_path / "outer.tar", tmp_path / "target", max_bytes=LIMIT)
    assert (target / "data" / "inner.zip").read_bytes() == inner


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["../evil", "a/../../evil", "/evil", "..", "a\\..\\evil", "C:evil", "C:\\evil", "//host/evil"],
)
def test_paths_that_lead_out_are_refused(tmp_path, kind, name):
    archive = build(tmp_path / f"archive.{kind}", [("good", b"good"), (name, b"evil")])
    assert_refused(archive, tmp_path, "leads out of the folder")
    # … also among the entries that were not asked for.
    assert_refused(archive, tmp_path, "leads out of the folder", members=["good"])


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_tars_are_refused(tmp_path, kind):
    archive = tmp_path / "archive.tar"
    with tarfile.open(archive, "w") as file:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "../../evil"
        file.addfile(member)
    assert_refused(archive, tmp_path, "is a link or a device")


def test_links_in_zips_are_refused(tmp_path):
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        info = zipfile.ZipInfo("link")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "../../evil")
    assert_refused(archive, tmp_path, "is a link or a device")


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_bytes_or_files_are_refused(tmp_path, kind):
    bomb = build(tmp_path / f"bomb.{kind}", [("a", b"0" * 600_000), ("b", b"0" * 600_000)])
    assert_refused(bomb, tmp_path, "unpacks to more than 1000000 bytes")
    many = build(tmp_path / f"many.{kind}", [(f"file{i}", b"") for i in range(11)])
    assert_refused(many, tmp_path, "more than 10 entries", max_files=10)


def test_zip_whose_header_understates_the_size(tmp_path):
    archive = build(tmp_path / "bomb.zip", [("a", b"0" * 2_000_000)])
    raw = archive.read_bytes()
    archive.write_bytes(raw.replace((2_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with zipfile.ZipFile(archive) as file:
        assert file.getinfo("a").file_size == 10
    # Whether the zip reader stops at the declared size or goes on, no more than the limit is
    # written.
    assert_refused(archive, tmp_path, "bomb.zip", error=ValueError)


@pytest.mark.parametrize("kind", KINDS)
def test_colliding_names_are_refused(tmp_path, kind):
    archive = build(tmp_path / f"archive.{kind}", [("File", b"1"), ("file", b"2")])
    assert_refused(archive, tmp_path, "twice")


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_archives_are_named(tmp_path, kind):
    archive = build(tmp_path / f"archive.{kind}", [("a", bytes(range(256)) * 500)])
    archive.write_bytes(archive.read_bytes()[:700])
    assert_refused(archive, tmp_path, f"archive.{kind}", error=ValueError)


def test_no_archive_and_missing_member(tmp_path):
    (tmp_path / "note.txt").write_text("no archive")
    assert_refused(tmp_path / "note.txt", tmp_path, "neither a zip nor a tar", error=ValueError)
    archive = build(tmp_path / "archive.zip", [("a", b"")])
    assert_refused(archive, tmp_path, "does not hold b", error=ValueError, members=["a", "b"])
