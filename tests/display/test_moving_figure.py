"""Moving figures without a browser: frames, texts, refusals, and what a notebook is given."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import textwrap
import time
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from fourviews import display
from fourviews.display.frames import encode

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
Image = pytest.importorskip("PIL.Image")

WORDS = {"label": "Height", "alt": lambda value: f"A bar of height {float(value):g}"}


@pytest.fixture
def plt():
    import matplotlib.pyplot as plt

    with matplotlib.rc_context():
        display.use_style()
        yield plt
        plt.close("all")


@pytest.fixture
def bar(plt):
    """Draws one bar, and remembers for which values."""

    def draw(value):
        draw.calls.append(value)
        _, ax = plt.subplots(figsize=(3, 2))
        ax.bar([0], [float(value)])
        ax.set_ylim(0, 10)

    draw.calls = []
    return draw


class Elements(HTMLParser):
    """Tags of a piece of HTML, with a check that they are closed in order."""

    VOID = {"img", "input"}

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.found if name == tag]


def picture(address: str):
    import base64

    return Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))


def test_each_value_has_a_frame_a_text_and_an_alternative(bar):
    shown = display.slider(bar, [1, 4, 9], start=1, format=lambda v: f"{v} m", **WORDS)
    elements = Elements(shown.html())
    images = elements.all("img")
    assert [one["alt"] for one in images] == [f"A bar of height {k}" for k in (1, 4, 9)]
    frames = [one for one in elements.all("div") if one["class"].startswith("fv-slider-frame ")]
    frames += [one for one in elements.all("div") if one["class"] == "fv-slider-frame"]
    assert {one["data-text"] for one in frames} == {"1 m", "4 m", "9 m"}
    assert [one["data-text"] for one in frames if "hidden" not in one] == ["4 m"]
    (control,) = elements.all("input")
    assert (control["type"], control["min"], control["max"]) == ("range", "0", "2")
    assert (control["value"], control["aria-valuetext"]) == ("1", "4 m")
    assert control["aria-label"] == "Height"
    assert len(elements.all("output")) == 1
    assert elements.all("button") == []
    # The bar's height in the picture is the value.
    heights = []
    for one in images:
        pixels = np.asarray(picture(one["src"]).convert("RGB")).astype(int)
        blue = (np.abs(pixels - [0, 0x72, 0xB2]).sum(axis=2) < 30).any(axis=1).sum()
        heights.append(blue)
        assert picture(one["src"]).size == (432, 288)
        assert (int(one["width"]), int(one["height"])) == (330, 220)
    assert heights[1] / heights[0] == pytest.approx(4, rel=0.05)
    assert heights[2] / heights[0] == pytest.approx(9, rel=0.05)


@pytest.mark.parametrize(
    "values",
    [torch.tensor([0.1, 2.0]), np.array([0.1, 2.0], dtype=np.float32), (0.1, 2.0), iter([0.1, 2])],
)
def test_values_of_torch_and_numpy_are_read_as_numbers(bar, values):
    shown = display.slider(bar, values, **WORDS)
    assert shown.texts == ["0.1", "2"]
    assert [float(value) for value in bar.calls] == pytest.approx([0.1, 2.0])


def test_texts_are_escaped(bar):
    words = "<b> & \"quotes\" 'here' </script>"
    shown = display.slider(
        bar,
        [1, 2],
        label=words,
        alt=lambda v: f"{words} with {v}",
        format=lambda v: f"{words} {v}",
        caption=f"{words} and $a < b$.",
    )
    elements = Elements(shown.html())
    assert elements.all("b") == []
    assert len(elements.all("script")) == 1
    assert [one["alt"] for one in elements.all("img")] == [f"{words} with {v}" for v in (1, 2)]
    assert elements.all("input")[0]["aria-label"] == words
    caption = re.search(r"<figcaption>(.*?)</figcaption>", shown.html(), re.DOTALL).group(1)
    assert '<span class="math notranslate nohighlight">\\(a &lt; b\\)</span>' in caption
    assert unescape(re.sub(r"<[^>]+>", "", caption)) == f"{words} and \\(a < b\\)."


def test_the_piece_asks_for_nothing_and_has_no_ids(bar):
    text = display.slider(bar, [1, 2], **WORDS).html()
    assert not re.search(r"https?:|@import|url\(|\bid=", text)
    for attributes in (found for _, found in Elements(text).found):
        assert all(
            attributes[name].startswith("data:") for name in ("src", "href") if name in attributes
        )


def test_the_same_input_gives_the_same_bytes(bar):
    first = display.slider(bar, [1, 2], caption="Twice", **WORDS)._repr_mimebundle_()
    second = display.slider(bar, [1, 2], caption="Twice", **WORDS)._repr_mimebundle_()
    assert first == second
    for png in (first["image/png"], picture_bytes(first["text/html"])):
        assert set(re.findall(rb"(tEXt|iTXt|zTXt|tIME|eXIf)", png)) == set()
        assert Image.open(io.BytesIO(png)).info.keys() <= {"transparency", "gamma"}


def picture_bytes(text: str) -> bytes:
    import base64

    return base64.b64decode(Elements(text).all("img")[0]["src"].split(",")[1])


def test_paper_gets_a_strip_with_the_first_and_the_last(bar):
    shown = display.slider(bar, range(1, 10), **WORDS)
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert bundle["text/plain"] == "Slider «Height»: 9 frames, from 1 to 9"
    strip = np.asarray(Image.open(io.BytesIO(bundle["image/png"])).convert("RGB"))
    assert strip.shape[1] == 2 * 432 + 24
    for index, corner in ((0, (0, 0)), (8, (1, 1))):
        frame = np.asarray(Image.open(io.BytesIO(shown.frame(index).png)).convert("RGB"))
        top, left = corner[0] * (288 + 48), corner[1] * (432 + 24)
        part = strip[top : top + 288, left : left + 432]
        assert np.abs(part.astype(int) - frame).max() < 40  # another palette, the same picture
        below = strip[top + 288 : top + 288 + 48, left : left + 432]
        assert (below < 128).any()  # the value is written there


def test_twelve_frames_take_little(plt):
    x = np.linspace(0, 6, 300)

    def draw(beta):
        _, ax = plt.subplots()
        for k in (1, 2, 3):
            ax.plot(x, np.sin(k * beta * x), label=f"k = {k}")
        ax.set(ylim=(-1.2, 1.2), xlabel="time", title="Waves")
        ax.legend(loc="upper right")

    shown = display.slider(draw, np.linspace(0.2, 1.5, 12), **WORDS)
    assert len(shown.html()) < 500_000


@pytest.mark.parametrize(
    "draw",
    [
        lambda plt: lambda v: plt.subplots()[1].plot([0, v, v]),
        lambda plt: lambda v: plt.plot([0, v]),
        lambda plt: lambda v: plt.figtext(0.5, 0.5, str(v)),
        lambda plt: lambda v: matplotlib.figure.Figure().add_subplot().plot([0, v])[0].figure,
        lambda plt: lambda v: (plt.subplots()[1].plot([0, v]), plt.show()),
        lambda plt: lambda v: display.attention_map([[v, 1], [1, 1]], ["a", "b"], limit=2),
    ],
    ids=["subplots", "current figure", "text only", "returned", "shown", "attention_map"],
)
def test_ways_to_draw(plt, draw, recwarn):
    shown = display.slider(draw(plt), [1.0, 2.0], **WORDS)
    first, second = (picture(one["src"]) for one in Elements(shown.html()).all("img"))
    colours = first.convert("RGB").getcolors(1 << 20)
    assert len(colours) > 2
    assert first.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert first.tobytes() != second.tobytes()
    assert plt.get_fignums() == []
    assert [str(warning.message) for warning in recwarn] == []


def test_figures_of_others_stay_open_and_current(plt, bar):
    mine = [plt.figure(), plt.figure(), plt.figure()]
    plt.figure(mine[1].number)
    show = plt.show
    display.slider(bar, [1, 2], **WORDS)
    assert [plt.figure(number) for number in plt.get_fignums()] == mine
    plt.figure(mine[1].number)

    def fails(value):
        bar(value)
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        display.slider(fails, [1, 2], **WORDS)
    assert plt.gcf() is mine[1]
    assert plt.get_fignums() == [figure.number for figure in mine]
    assert all(figure.get_axes() == [] for figure in mine)
    assert plt.show is show


def test_settings_of_matplotlib_come_back(plt):
    def draw(value):
        plt.rcParams["lines.linewidth"] = 17.0
        plt.plot([0, value])

    before = plt.rcParams["lines.linewidth"]
    display.slider(draw, [1, 2], **WORDS)._repr_mimebundle_()
    assert plt.rcParams["lines.linewidth"] == before != 17.0


def test_a_figure_that_is_kept_may_be_drawn_on_again(plt):
    figure, ax = plt.subplots(figsize=(3, 2))
    (line,) = ax.plot([0, 1], [0, 0])
    ax.set_ylim(0, 3)

    def draw(value):
        line.set_ydata([value, value])
        return figure

    shown = display.slider(draw, [1, 2], **WORDS)
    assert shown.frame(0).png != shown.frame(1).png
    assert plt.get_fignums() == [figure.number]


def test_the_canvas_is_fixed_and_white_whatever_the_settings(plt, bar):
    plain = display.slider(bar, [1, 2], **WORDS)
    plt.rcParams.update({"savefig.bbox": "tight", "savefig.transparent": True, "savefig.dpi": 40})
    same = display.slider(bar, [1, 2], **WORDS)
    assert same.html() == plain.html()
    plt.rcParams["figure.facecolor"] = (1, 1, 1, 0)  # as the inline back end had it
    clear = picture(Elements(display.slider(bar, [1, 2], **WORDS).html()).all("img")[0]["src"])
    assert "transparency" not in clear.info
    assert clear.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def many(count):
    return {"values": list(range(1, count + 1))}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"values": []}, "values holds 0 values; it needs 2 to 60"),
        ({"values": [1]}, "values holds 1 values"),
        (many(61), "values holds 61 values"),
        ({"values": 3}, "values is of type int"),
        ({"draw": "bar"}, "draw is of type str"),
        ({"start": 2}, "start is 2; it needs to be an index from 0 to 1"),
        ({"start": -1}, "start is -1"),
        ({"start": 0.5}, "start is 0.5"),
        ({"label": " "}, "label is ' '"),
        ({"label": None}, "label is None"),
        ({"label": r"the weight $\beta$"}, "write β"),
        ({"format": lambda v: v}, r"format\(value\) is 1"),
        ({"format": lambda v: rf"\beta = {v}"}, "write β"),
        ({"caption": None}, "caption is of type NoneType"),
        ({"alt": "A bar of some height"}, "alt is one text for 2 frames"),
        ({"alt": ["A bar of height 1"]}, "alt holds 1 texts for 2 values"),
        ({"alt": 3}, "alt is of type int"),
        ({"alt": ["A bar of height 1", "bar two"]}, "alt of frame 1 is 'bar two'; it needs three"),
        ({"alt": ["A bar of height 1", None]}, "alt of frame 1 is None"),
        ({"alt": ["A bar, like others"] * 2}, "what differs"),
        ({"draw": lambda v: None}, "draw draws nothing for Height: 1"),
        ({"draw": lambda v: matplotlib.figure.Figure()}, "draw returns an empty figure"),
    ],
)
def test_bad_input_is_named(bar, changes, message):
    arguments = {"draw": bar, "values": [1, 2], **WORDS, **changes}
    with pytest.raises(ValueError, match=message):
        display.slider(arguments.pop("draw"), arguments.pop("values"), **arguments)


@pytest.mark.parametrize("interval", [0, 339, 10_001, 500.5, None, "500"])
def test_bad_intervals_are_named(bar, interval):
    with pytest.raises(ValueError, match="interval_ms"):
        display.animate(bar, [1, 2], interval_ms=interval, **WORDS)


def test_two_figures_for_one_value_are_too_many(plt, bar):
    with pytest.raises(ValueError, match="draw makes 2 figures for Height: 1"):
        display.slider(lambda v: (bar(v), bar(v)), [1, 2], **WORDS)


def test_frames_of_different_size_are_refused(plt):
    def draw(value):
        plt.subplots(figsize=(value, 2))[1].plot([0, 1])

    with pytest.raises(ValueError, match="330 x 220 pixels for Height: 3, .*220 x 220"):
        display.slider(draw, [2, 3], **WORDS)
    assert plt.get_fignums() == []


def test_photographs_are_stored_in_no_time_and_stay_on_white():
    pixels = np.full((500, 800, 3), 255, dtype=np.uint8)
    pixels[50:450, 50:750] = np.random.default_rng(0).integers(0, 256, (400, 700, 3))
    started = time.process_time()
    stored = encode(Image.fromarray(pixels))
    assert time.process_time() - started < 3  # the way for drawings takes 20 seconds for it
    with Image.open(io.BytesIO(stored)) as image:
        frame = np.asarray(image.convert("RGB"))
    assert (frame[:50] == 255).all()
    assert np.abs(frame.astype(int) - pixels).mean() < 20


def test_too_many_bytes_are_refused_with_advice(plt):
    generator = np.random.default_rng(0)

    def noise(value):
        plt.figure(figsize=(6, 4))
        plt.imshow(generator.random((500, 500, 3)), aspect="auto")

    with pytest.raises(ValueError, match=r"frames of «Height» take [\d.]+ MB .* below 1\.2 MB: "):
        display.slider(noise, range(1, 9), **WORDS)


def test_an_animation_is_a_slider_with_a_button(bar):
    shown = display.animate(bar, [1, 2, 3], interval_ms=900, **WORDS)
    elements = Elements(shown.html())
    assert [one["type"] for one in elements.all("button")] == ["button"]
    assert elements.all("figure")[0]["data-interval"] == "900"
    assert len(elements.all("input")) == 1
    assert repr(shown) == "Animation «Height»: 3 frames, from 1 to 3"
    with pytest.raises(ValueError, match="frames holds 1 values"):
        display.animate(bar, [1], **WORDS)


PROGRAM = """\
import json
import sys
import fourviews.display as display

early = [name for name in ("matplotlib", "PIL", "IPython", "ipywidgets") if name in sys.modules]
import matplotlib.pyplot as plt

shown = display.slider(
    lambda v: plt.plot([0, v]), [1, 2], label="Slope", alt=lambda v: f"A line of slope {v}"
)
print(json.dumps([early, sorted(shown._repr_mimebundle_())]))
"""


def test_a_script_needs_no_screen_and_no_notebook():
    import os

    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND", "FOURVIEWS_BOOK_BUILD")
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[], ["image/png", "text/html", "text/plain"]]


def run_cells(*cells: str, **environment: str) -> list[list]:
    """Outputs of cells run by a real kernel with the inline back end."""
    import os

    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell)) for cell in cells]
    )
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3")
    inherited = {k: v for k, v in os.environ.items() if k not in ("MPLBACKEND",)}
    with client.setup_kernel(env={**inherited, "OMP_NUM_THREADS": "1", **environment}):
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
    return [cell.outputs for cell in notebook.cells]


CELL = """\
import matplotlib.pyplot as plt
from fourviews import display

drawn = []

def draw(value):
    drawn.append(value)
    plt.subplots(figsize=(3, 2))[1].plot([0, value])
    {ending}

shown = display.{kind}(
    draw, [1, 2, 3], label="Slope", alt=lambda v: f"A line of slope {{v}}", caption="It $x$ rises."
)
shown
"""
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("ending", ["", "plt.show()"])
def test_a_kernel_of_the_book_shows_one_thing_once(ending):
    (outputs,) = run_cells(CELL.format(kind="slider", ending=ending), FOURVIEWS_BOOK_BUILD="1")
    assert [output.output_type for output in outputs] == ["execute_result"]
    assert set(outputs[0].data) == {"text/html", "image/png", "text/plain"}


def test_widgets_can_be_switched_off():
    (outputs,) = run_cells(
        CELL.format(kind="slider", ending=""), FOURVIEWS_BOOK_BUILD="0", FOURVIEWS_WIDGETS="0"
    )
    assert VIEW not in outputs[0].data


@pytest.mark.parametrize("kind", ["slider", "animate"])
def test_a_live_kernel_draws_what_the_widget_asks_for(kind):
    pytest.importorskip("ipywidgets")
    first, second = run_cells(
        # No patience: only the first frame is there when the widget is shown.
        "import fourviews.display.moving_figure as module\nmodule._SECONDS_OF_PATIENCE = -1.0\n"
        + CELL.format(kind=kind, ending=""),
        """\
        import json
        import ipywidgets

        counts = [len(drawn)]
        from ipywidgets.widgets.widget import _instances
        of = {type(w).__name__: w for w in _instances.values()}
        picture = next(w for w in _instances.values() if type(w) is ipywidgets.HTML)
        control = of["SelectionSlider"]
        alts = [picture.value.split('alt="')[1]]
        for value in (2, 1, 2):
            control.value = value
            counts.append(len(drawn))
            alts.append(picture.value.split('alt="')[1])
        if "Play" in of:
            of["Play"].value = 0
            alts.append(picture.value.split('alt="')[1])
        print(json.dumps([counts, [alt.split('"')[0] for alt in alts], plt.get_fignums()]))
        """,
        FOURVIEWS_BOOK_BUILD="0",
    )
    (output,) = first
    assert {VIEW, "text/html", "text/plain"} == set(output.data)
    assert output.data["text/html"].count("<img ") == 1
    counts, alts, open_figures = json.loads(second[0].text)
    assert counts == [1, 2, 3, 3]  # each frame is drawn once, when it is first asked for
    wanted = [1, 3, 2, 3] + ([1] if kind == "animate" else [])
    assert alts == [f"A line of slope {value}" for value in wanted]
    assert open_figures == []


def test_a_live_kernel_leaves_all_frames_for_front_ends_without_widgets():
    pytest.importorskip("ipywidgets")
    first, second = run_cells(
        CELL.format(kind="slider", ending=""),
        "print(drawn)",
        FOURVIEWS_BOOK_BUILD="0",
    )
    assert first[0].data["text/html"].count("<img ") == 3
    assert second[0].text.strip() in ("[1, 3, 2]", "[1, 2, 3]")


def test_the_widget_tells_what_went_wrong(plt, bar):
    pytest.importorskip("ipywidgets")
    from fourviews.display import moving_widget

    shown = display.slider(bar, [1, 2], **WORDS)
    shown._frames.pop(1)

    def fails(value):
        raise RuntimeError("no <luck>")

    shown._draw = fails
    picture, row = moving_widget.build(shown).children
    control = row.children[0]
    assert control.description == "Height"
    assert 'alt="A bar of height 1"' in picture.value
    control.value = 1
    assert picture.value == ('<p role="alert">draw fails for 2: RuntimeError: no &lt;luck&gt;</p>')
    control.value = 0
    assert 'alt="A bar of height 1"' in picture.value
