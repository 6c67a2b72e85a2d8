"""Bars appear for slow work only, and the switches that silence them work."""

import subprocess
import sys
import time

import pytest

from fourviews.display import progress, progress_enabled


@pytest.fixture(autouse=True)
def no_switches(monkeypatch):
    monkeypatch.delenv("FOURVIEWS_PROGRESS", raising=False)
    monkeypatch.delenv("FOURVIEWS_BOOK_BUILD", raising=False)


def slow_loop(**options):
    for _ in progress(range(3), label="slow work", **options):
        time.sleep(0.45)


def test_slow_work_shows_its_label(capsys):
    slow_loop()
    assert "slow work" in capsys.readouterr().err


def test_quick_work_shows_nothing(capsys):
    assert list(progress(range(1000), label="quick work")) == list(range(1000))
    assert capsys.readouterr().err.strip() == ""


@pytest.mark.parametrize(
    "name, value", [("FOURVIEWS_PROGRESS", "0"), ("FOURVIEWS_BOOK_BUILD", "1")]
)
def test_environment_silences_slow_work(monkeypatch, capsys, name, value):
    monkeypatch.setenv(name, value)
    slow_loop()
    assert capsys.readouterr().err == ""


def test_argument_wins_over_environment(monkeypatch, capsys):
    slow_loop(enabled=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FOURVIEWS_PROGRESS", "0")
    slow_loop(enabled=True)
    assert "slow work" in capsys.readouterr().err


@pytest.mark.parametrize(
    "environment, shown",
    [
        ({}, True),
        ({"FOURVIEWS_PROGRESS": "1"}, True),
        ({"FOURVIEWS_PROGRESS": "off"}, False),
        ({"FOURVIEWS_PROGRESS": " No "}, False),
        ({"FOURVIEWS_BOOK_BUILD": "0"}, True),
        ({"FOURVIEWS_BOOK_BUILD": "False"}, True),
        ({"FOURVIEWS_BOOK_BUILD": "yes"}, False),
        ({"FOURVIEWS_BOOK_BUILD": "1", "FOURVIEWS_PROGRESS": "1"}, False),
    ],
)
def test_reading_of_the_switches(monkeypatch, environment, shown):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert progress_enabled() is shown


@pytest.mark.parametrize("enabled", [True, False])
def test_counting_by_hand(enabled):
    with progress(total=4, label="steps", enabled=enabled) as bar:
        bar.update(2)
        bar.set_postfix_str("gap 1e-3")
        bar.update(2)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="total is -1"):
        progress(total=-1)
    with pytest.raises(ValueError, match="iterable is of type int"):
        progress(10)


def test_importing_display_does_not_import_matplotlib():
    code = "import sys, fourviews.display; print('matplotlib' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_no_widget_warning_in_a_kernel_without_ipywidgets():
    code = (
        "import sys, warnings; warnings.simplefilter('always');"
        "sys.modules['ipywidgets'] = None;"
        "import IPython, ipykernel.zmqshell;"
        "from fourviews.display import progress;"
        "print(list(progress(range(2), enabled=False)))"
    )
    pytest.importorskip("ipykernel")
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0 and answer.stderr == "", answer.stderr
    assert answer.stdout.strip() == "[0, 1]"
