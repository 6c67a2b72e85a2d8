/* Quizzes: what is said to a choice appears below it when it is chosen. Without this script the
   explanations stand in a <details> under the choices. */
"use strict";

for (const quiz of document.querySelectorAll("fieldset.quiz")) {
  const answers = quiz.querySelector("details.quiz-answers");
  for (const choice of quiz.querySelectorAll(".quiz-choice")) {
    const said = answers.querySelector(`li[data-letter="${choice.dataset.letter}"] p`);
    said.hidden = true;
    choice.querySelector(".quiz-reply").append(said);
  }
  answers.remove();

  const show = () => {
    for (const choice of quiz.querySelectorAll(".quiz-choice")) {
      const chosen = choice.querySelector("input").checked;
      choice.querySelector(".quiz-reply p").hidden = !chosen;
      if (chosen) choice.dataset.state = choice.dataset.right === "true" ? "right" : "wrong";
      else delete choice.dataset.state;
    }
  };
  quiz.addEventListener("change", show);
  show(); // a browser may remember a choice when it comes back to the page
}
