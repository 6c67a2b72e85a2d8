/* The version selector: where the book is published, versions.json lies beside the versions' folders.
   Elsewhere, and from the disk, nothing is asked for and nothing is shown. */
"use strict";

document.addEventListener("DOMContentLoaded", async () => {
  const selectors = document.querySelectorAll("nav.version-selector");
  if (!selectors.length || !location.protocol.startsWith("http")) return;
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const here = root.pathname.split("/").at(-2);
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  const versions = answer?.ok ? await answer.json() : [];
  if (versions.length < 2 || !versions.includes(here)) return;
  for (const selector of selectors) {
    const list = selector.querySelector("select");
    for (const version of versions) list.add(new Option(version, version, false, version === here));
    list.addEventListener("change", async () => {
      const start = new URL(`../${list.value}/`, root);
      const page = new URL(list.dataset.page, start);
      // A page that the other version lacks leads to its start.
      const there = await fetch(page, { method: "HEAD" }).catch(() => null);
      location.assign(there?.ok ? page : new URL("index.html", start));
    });
    selector.hidden = false;
  }
});
