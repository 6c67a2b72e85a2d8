/* For readers who do not use a mouse or do not see the page: what the theme and MathJax leave out. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  // What scrolls sideways can be reached and moved by keyboard. The theme looks once, at the start
  // and when the window changes; what was folded away then, and formulas, would stay out of reach.
  const frames = document.querySelectorAll(
    "pre, div.math, .cell_output > .output, .pst-scrollable-table-container"
  );
  const look = (frame) => {
    const scrolls = frame.scrollWidth > frame.clientWidth || frame.scrollHeight > frame.clientHeight;
    if (scrolls) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  };
  const watcher = new ResizeObserver((changes) => changes.forEach((change) => look(change.target)));
  frames.forEach((frame) => watcher.observe(frame));

  // A formula's name is its TeX source, where a screen reader does not read the MathML itself.
  const name = () => {
    for (const item of window.MathJax.startup.document.math) {
      const formula = item.typesetRoot?.querySelector("mjx-assistive-mml > math");
      const source = item.math.replace(/\\(label|tag)\{[^}]*\}/g, "").replace(/\s+/g, " ").trim();
      if (formula && source) formula.setAttribute("aria-label", source);
    }
    frames.forEach(look);
  };
  window.MathJax?.startup?.promise?.then(name);
});
