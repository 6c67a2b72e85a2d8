(() => {
  const set = figure => {
    figure.setAttribute("data-ready", "");
    const frames = figure.querySelectorAll(".fv-slider-frame");
    const range = figure.querySelector("input");
    const output = figure.querySelector("output");
    const button = figure.querySelector("button");
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    const last = frames.length - 1;
    let now = Number(figure.dataset.start), timer = null;
    const name = () => {
      if (!button) return;
      const word = timer !== null ? "Pause" : now === last ? "Replay"
        : calm.matches ? "Step" : "Play";
      button.lastElementChild.textContent = word;
      button.dataset.does = word; // the icon follows
    };
    const show = next => {
      now = next;
      frames.forEach((frame, k) => { frame.hidden = k !== now; });
      const text = frames[now].dataset.text;
      output.textContent = text;
      range.value = now;
      range.setAttribute("aria-valuetext", text);
      range.style.setProperty("--fv-share", 100 * now / last + "%");
      name();
    };
    const stop = () => { clearInterval(timer); timer = null; name(); };
    const step = () => {
      if (!figure.isConnected || now >= last) return stop();
      show(now + 1);
      if (now >= last) stop();
    };
    range.addEventListener("input", () => { stop(); show(Number(range.value)); });
    if (button) button.addEventListener("click", () => {
      if (timer !== null) return stop();
      if (now === last) show(0);
      else if (calm.matches) show(now + 1);
      if (!calm.matches) timer = setInterval(step, Number(figure.dataset.interval));
      name();
    });
    calm.addEventListener("change", stop);
    frames.forEach(frame => { frame.querySelector(".fv-slider-text").hidden = true; });
    figure.querySelector(".fv-slider-controls").hidden = false;
    show(now);
  };
  // The page may be read in pieces: a figure is complete up to its control, or is left for later.
  const all = () => document.querySelectorAll("figure.fv-slider:not([data-ready])")
    .forEach(figure => { if (figure.querySelector("input")) set(figure); });
  all();
  setTimeout(all); // some notebooks run a script before what it stands beside is on the page
})();
