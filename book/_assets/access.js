/* For readers who do not use a mouse or do not see the page: what the theme and MathJax leave out. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  // What scrolls can be reached and moved by keyboard. The theme looks once, at the start and when
  // the window changes; what was folded away then, and formulas, would stay out of reach.
  const look = (frame) => {
    const down = !frame.matches("div.math, mjx-container"); // formulas scroll sideways only
    const scrolls =
      frame.scrollWidth > frame.clientWidth || (down && frame.scrollHeight > frame.clientHeight);
    if (scrolls) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  };
  const watcher = new ResizeObserver((changes) => changes.forEach((change) => look(change.target)));
  const watch = (frames) => frames.forEach((frame) => watcher.observe(frame));
  watch(
    document.querySelectorAll(
      "pre, div.math, .cell_output > .output, .pst-scrollable-table-container"
    )
  );

  // The arrow that unfolds pages below a page in the list of pages has no words of its own.
  for (const arrow of document.querySelectorAll("nav.bd-links details > summary")) {
    const above = arrow.closest("li")?.querySelector(":scope > a");
    if (above && !arrow.textContent.trim()) {
      arrow.setAttribute("aria-label", `Pages below «${above.textContent.trim()}»`);
    }
  }

  // A formula's name is its TeX source, where a screen reader does not read the MathML itself.
  const name = () => {
    for (const item of window.MathJax.startup.document.math) {
      const formula = item.typesetRoot?.querySelector("mjx-assistive-mml > math");
      const source = item.math.replace(/\\(label|tag)\{[^}]*\}/g, "").replace(/\s+/g, " ").trim();
      if (formula && source) formula.setAttribute("aria-label", source);
    }
    document.querySelectorAll("div.math").forEach(look);
    watch(document.querySelectorAll("mjx-container[display='true']"));
  };
  window.MathJax?.startup?.promise?.then(name);
});
