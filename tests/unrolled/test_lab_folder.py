"""The lab runs on a review folder of one's own, in IMDB's layout."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from fourviews import course, data

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "lessons_src" / "unrolled_04_sentiment_lab.md"


@pytest.fixture
def own_reviews(tmp_path, monkeypatch):
    """Seven reviews of each class and part, nothing else, and no network."""
    try:
        data.glove()
    except (data.DataNotFoundError, ImportError) as error:
        pytest.skip(f"needs word vectors: {error}")
    for split in ("train", "test"):
        for name, rating, word in (("neg", 1, "awful"), ("pos", 10, "lovely")):
            folder = tmp_path / "data" / "aclImdb" / split / name
            folder.mkdir(parents=True)
            for k in range(7):
                (folder / f"{k}_{rating}.txt").write_text(
                    f"What a {word} film!<br /><br />I saw it {k} times in {split}ing, and then"
                    f" {'again ' * k} with my {word} friends.",
                    encoding="utf-8",
                )
    monkeypatch.setenv("FOURVIEWS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FOURVIEWS_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("FOURVIEWS_OFFLINE", "1")
    monkeypatch.setenv("FOURVIEWS_BOOK_BUILD", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


def test_a_review_folder_in_the_official_layout_runs_the_lab(own_reviews, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    from run_lab import lab_source

    sizes = {
        "texts": 4, "judged": 30, "train": 30, "steps": 3, "cut": 40, "corpus": "6B", "dim": 50
    }  # fmt: skip
    monkeypatch.setattr(
        course, "preset", lambda **_: course.presets.Preset(name="reduced", **sizes)
    )
    said, space = io.StringIO(), {"__name__": "__main__"}
    with contextlib.redirect_stdout(said):
        exec(compile(lab_source(LAB), str(LAB), "exec"), space)
    pyplot.close("all")
    page = " ".join(said.getvalue().split())
    assert "long: <14 texts; IMDB: the official data, unpacked, from FOURVIEWS_DATA" in page
    assert "short: <30 texts; Made-up sentences about films" in page
    assert len(space["train"]["long"][0]) == 14 and len(space["test"]["long"]) == 4
    assert all(run.rises == 0 for key, run in space["trained_runs"].items() if key[1] == "joint")
    kept = list((own_reviews / "results").glob("*.reduced.json"))
    assert [file.name for file in kept] == ["unrolled_04_sentiment_lab.reduced.json"]
