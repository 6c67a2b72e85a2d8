"""The front picture: which theorem says what about which attention, in each of the four views.

It is HTML, so that its words are text, its theorems links, and its layout fits the page: a table of
tiles where there is room, a list for each view on a telephone. On paper it is a table. Numbers and
places of the theorems come from the book, so a label that goes away stops the build.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from sphinx.util import texescape

from lesson_source import SourceError
from numbering import Book, Entry

KINDS = (
    "Linear scores",
    "ReLU scores",
    "Softmax, symmetric weights",
    "Softmax, free weights",
    "Softmax by position",
)


@dataclass(frozen=True)
class Tile:
    """What a view says about one kind of attention; `stops` where it says what fails."""

    label: str
    words: str
    stops: bool = False


@dataclass(frozen=True)
class View:
    """A column: name, question, a drawing of 48 × 24, and a tile or None for each kind."""

    name: str
    question: str
    drawing: str
    tiles: tuple[Tile | None, ...]


NO_SPLINE = Tile("prop-cubic-softmax", "No polynomial on any piece, so no degree", stops=True)
VIEWS = (
    View(
        "Convex program",
        "How far from the best layer?",
        '<path d="M4 3 Q24 39 44 3"/><path d="M4 21.5 H44" stroke-dasharray="3 3"/>'
        '<circle cx="24" cy="21" r="2.4"/>',
        (
            Tile("cvx-08", "Training is a nuclear-norm problem: a gap to the best of any width"),
            Tile("cvx-11", "A convex program over patterns of scores; a bound where they are many"),
            None,
            None,
            None,
        ),
    ),
    View(
        "Energy",
        "What does a step lower?",
        '<path d="M4 3 H13 V9 H23 V15 H33 V20 H44"/>',
        (
            Tile(
                "prop-closing-energy",
                "An energy from the symmetric part of its weights, a bound at given tokens",
            ),
            None,
            Tile(
                "opt-07-repaired",
                "With a constant in the denominator a step never raises the energy",
            ),
            Tile("opt-20", "Queries and keys in twice the width, and key lengths in the scores"),
            None,
        ),
    ),
    View(
        "Spline",
        "Which function is it?",
        '<path d="M4 20 C10 2 14 2 18 12 C24 26 28 16 31 9 C35 2 40 8 44 14"/>'
        '<circle cx="18" cy="12" r="2"/><circle cx="31" cy="9" r="2"/>',
        (
            Tile("prop-closing-degrees", "One polynomial of degree three"),
            Tile("spl-08", "Pieces of degree three; degrees of whole Transformers by rule"),
            NO_SPLINE,
            NO_SPLINE,
            None,
        ),
    ),
    View(
        "Convolution",
        "Which neighbours does it add up?",
        '<path d="M15 3 H33 V21 H15 Z M21 3 V21 M27 3 V21 M15 9 H33 M15 15 H33"/>'
        '<path d="M21 9 H27 V15 H21 Z" fill="currentColor"/>',
        (
            Tile("prop-closing-nearest", "A nearest convolution, and a bound on the rest"),
            Tile("thm-equivariance", "Without positions no attention sees the order", stops=True),
            None,
            Tile("cnv-11-repaired", "Little content leaves a head where its positions put it"),
            Tile("cnv-03", "Any convolution is a limit of sharp heads, with a bound on the error"),
        ),
    ),
)
IN_WORDS = (
    "Map of the four views. For each kind of attention it says which theorem of the book a view has "
    "about it: convex programs about linear and ReLU scores, energies about linear scores and "
    "softmax, splines about linear and ReLU scores, convolutions about scores that know positions."
)


def concept_map(book: Book) -> str:
    """The map as one HTML figure; SourceError for a theorem that the book does not have."""
    kinds = "".join(f"<p>{escape(kind)}</p>" for kind in KINDS)
    columns = "\n".join(_column(view, book) for view in VIEWS)
    return (
        f'<figure class="concept-map" aria-label="{escape(IN_WORDS)}">\n'
        f'<div class="concept-map-grid">\n<div class="concept-map-kinds" aria-hidden="true">'
        f"<p></p>{kinds}</div>\n{columns}\n</div>\n"
        "<figcaption>Which theorem says what about which attention. Dashed: it says what fails. "
        "Empty: nothing particular to it is proved in this book.</figcaption>\n</figure>\n"
    )


def _column(view: View, book: Book) -> str:
    head = (
        f'<p class="concept-map-view"><svg viewBox="0 0 48 24" aria-hidden="true">{view.drawing}</svg>'
        f"<strong>{escape(view.name)}</strong> <span>{escape(view.question)}</span></p>"
    )
    tiles = "".join(
        '<p class="concept-map-none" aria-hidden="true"></p>'
        if tile is None
        else _tile(kind, tile, book)
        for kind, tile in zip(KINDS, view.tiles, strict=True)
    )
    return f'<div class="concept-map-column">{head}{tiles}</div>'


def _entry(tile: Tile, book: Book) -> Entry:
    entry = book.entries.get(tile.label)
    if entry is None:
        raise SourceError("tools/concept_map.py", 1, f"no statement {tile.label!r} in the book")
    return entry


def _tile(kind: str, tile: Tile, book: Book) -> str:
    entry = _entry(tile, book)
    link = f'<a href="{entry.page}.html#{entry.anchor}">{escape(entry.name)}</a>'
    name = "concept-map-tile concept-map-stops" if tile.stops else "concept-map-tile"
    return (
        f'<p class="{name}"><em>{escape(kind)}</em> <span>{escape(tile.words)}.</span> {link}</p>'
    )


def on_paper(book: Book) -> str:
    """The map as a LaTeX table, a row a kind of attention."""
    texescape.init()
    write = texescape.escape
    column = r">{\raggedright\arraybackslash}p{0.185\linewidth}"
    heads = [rf"\textbf{{{write(view.name)}}} {write(view.question)}" for view in VIEWS]
    rows = [
        [rf"\textit{{{write(kind)}}}", *(_cell(view.tiles[at], book) for view in VIEWS)]
        for at, kind in enumerate(KINDS)
    ]
    body = "\n".join(" & ".join(row) + r" \\ \hline" for row in [["", *heads], *rows])
    return (
        "\\begin{center}\\small\n"
        rf"\begin{{tabular}}{{>{{\raggedright\arraybackslash}}p{{0.12\linewidth}}*{{4}}{{{column}}}}}"
        f"\n\\hline\n{body}\n\\end{{tabular}}\n\\par\\smallskip\n"
        "Which theorem says what about which attention. In italics: it says what fails. "
        "Empty: nothing particular to it is proved in this book.\n\\end{center}\n"
    )


def _cell(tile: Tile | None, book: Book) -> str:
    if tile is None:
        return ""
    entry = _entry(tile, book)
    words = f"{texescape.escape(tile.words)}."
    words = rf"\textit{{{words}}}" if tile.stops else words
    return rf"{words} \hyperref[\detokenize{{{entry.page}:{entry.anchor}}}]{{{entry.name}}}"


#: What `book/index.md` includes.
FILES = {"concept_map.html": concept_map, "concept_map.tex": on_paper}
