"""The directive `{quiz}`: a question with choices, each of which says why it is right or not.

On the page it is a fieldset of radio buttons. Below them stand the explanations in a `<details>`,
which is all that a reader without scripts needs. `quiz.js` moves each explanation under its choice
and shows it once that is chosen. In other formats than HTML a quiz is a list, answers at its end.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# The grammar of lessons lies beside this folder; a second reader of it could differ.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import lesson_source  # noqa: E402

SCRIPT = "quiz.js"  # in book/_assets
VERDICTS = {True: "Right.", False: "Not quite."}


class quiz(nodes.General, nodes.Element):
    """The whole: a question, choices, then what is said to them."""


class quiz_question(nodes.General, nodes.Element):
    """The question's paragraphs, of which HTML makes the legend."""


class quiz_choice(nodes.General, nodes.Element):
    """One choice: `letter`, `correct`, and the `group` that its radio button belongs to."""


class quiz_answers(nodes.General, nodes.Element):
    """What is said to the choices, folded."""


class quiz_said(nodes.General, nodes.Element):
    """What is said to one choice: `letter` and `correct`."""


class Quiz(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        label = self.arguments[0]
        lines = [(self.content_offset + i, text) for i, text in enumerate(self.content)]
        question, choices = lesson_source.quiz_parts(self.content_offset, lines, self.refuse)
        whole = quiz("", ids=[label], names=[])
        asked = quiz_question()
        self.parse(list(question), asked)
        # A legend holds a line of text rather than paragraphs.
        for paragraph in list(asked.findall(nodes.paragraph)):
            paragraph.replace_self(nodes.inline("", "", *paragraph.children, classes=["asked"]))
        whole += asked
        answers = quiz_answers()
        for letter, choice in zip("abcde", choices, strict=False):
            facts = {"letter": letter, "correct": choice.correct, "group": label}
            whole += quiz_choice("", *self.words(choice.text), **facts)
            verdict = nodes.strong("", VERDICTS[choice.correct])
            said = nodes.paragraph(
                "", "", verdict, nodes.Text(" "), *self.words(choice.explanation)
            )
            answers += quiz_said("", said, **facts)
        whole += answers
        self.set_source_info(whole)
        # Guides refer to a quiz by its label.
        domain = self.env.get_domain("std")
        domain.note_hyperlink_target(label, self.env.docname, label, "Quick question")
        return [whole]

    def refuse(self, line: int, message: str):
        raise self.error(message)

    def parse(self, lines: lesson_source.Lines, parent: nodes.Element) -> None:
        text = StringList([text for _, text in lines], source=self.get_source_info()[0])
        self.state.nested_parse(text, lines[0][0], parent)

    def words(self, lines: lesson_source.Lines) -> list[nodes.Node]:
        """Numbered lines of one paragraph, as what stands inside of it."""
        holder = nodes.Element()
        self.parse(lines, holder)
        if len(holder) != 1 or not isinstance(holder[0], nodes.paragraph):
            raise self.error("a choice of a quiz is one paragraph")
        return holder[0].children


def _visit_quiz(self, node: quiz) -> None:
    label = node["ids"][0]
    self.body.append(f'<fieldset class="quiz" id="{label}">\n')


def _depart_quiz(self, node: quiz) -> None:
    self.body.append("</fieldset>\n")


def _visit_question(self, node: quiz_question) -> None:
    self.body.append('<legend><span class="quiz-name">Quick question</span>\n')


def _depart_question(self, node: quiz_question) -> None:
    self.body.append("</legend>\n")


def _visit_choice(self, node: quiz_choice) -> None:
    right = "true" if node["correct"] else "false"
    self.body.append(
        f'<div class="quiz-choice" data-letter="{node["letter"]}" data-right="{right}"><label>'
        f'<input type="radio" name="{node["group"]}" value="{node["letter"]}">'
        f'<span class="quiz-letter" aria-hidden="true">{node["letter"]}</span>'
        '<span class="quiz-text">'
    )


def _depart_choice(self, node: quiz_choice) -> None:
    # What appears in the second part is read out by screen readers.
    self.body.append('</span></label><div class="quiz-reply" aria-live="polite"></div></div>\n')


def _visit_answers(self, node: quiz_answers) -> None:
    self.body.append('<details class="quiz-answers"><summary>The answer, and why</summary>\n<ul>\n')


def _depart_answers(self, node: quiz_answers) -> None:
    self.body.append("</ul></details>\n")


def _visit_said(self, node: quiz_said) -> None:
    letter = node["letter"]
    self.body.append(f'<li data-letter="{letter}"><span class="quiz-letter">{letter}</span>')


def _depart_said(self, node: quiz_said) -> None:
    self.body.append("</li>\n")


def _nothing(self, node: nodes.Element) -> None:
    pass


def _visit_latex(self, node: quiz) -> None:
    self.body.append("\n\n\\noindent\\textbf{Quick question.} ")


def _visit_latex_item(self, node: nodes.Element) -> None:
    self.body.append(f"\n\n\\noindent({node['letter']}) ")


def _visit_latex_answers(self, node: quiz_answers) -> None:
    self.body.append("\n\n\\noindent\\textit{Answers.}")


def _depart_latex(self, node: quiz) -> None:
    self.body.append("\n\n")


def add_script(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Load the script on pages with a quiz, and on no other."""
    if doctree is not None and next(iter(doctree.findall(quiz)), None) is not None:
        app.add_js_file(SCRIPT, loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    latex = (_nothing, _nothing)
    app.add_node(quiz, html=(_visit_quiz, _depart_quiz), latex=(_visit_latex, _depart_latex))
    app.add_node(quiz_question, html=(_visit_question, _depart_question), latex=latex)
    app.add_node(
        quiz_choice, html=(_visit_choice, _depart_choice), latex=(_visit_latex_item, _nothing)
    )
    app.add_node(
        quiz_answers, html=(_visit_answers, _depart_answers), latex=(_visit_latex_answers, _nothing)
    )
    app.add_node(quiz_said, html=(_visit_said, _depart_said), latex=(_visit_latex_item, _nothing))
    app.add_directive("quiz", Quiz)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
