"use strict";
// Counts the selected jobs, selects a page, and keeps a selection for who comes back to it: of pages
// that must not be stored, Firefox keeps no boxes. Boxes and buttons work without it.
(() => {
  const bulk = document.getElementById("bulk");
  if (!bulk) return;
  const all = document.getElementById("select-all");
  const told = document.getElementById("selected");
  const boxes = () => [...document.querySelectorAll('input[name="job"][form="bulk"]')];
  const keep = () => {
    const selected = boxes().filter((box) => box.checked).map((box) => box.value);
    history.replaceState({ ...history.state, selected }, "");
  };
  const restore = () => {
    const kept = history.state?.selected ?? [];
    boxes().forEach((box) => { box.checked ||= kept.includes(box.value); });
    show();
  };
  const show = () => {
    const some = boxes();
    const count = some.filter((box) => box.checked).length;
    told.textContent = count ? told.dataset.some.replace("{count}", count) : told.dataset.none;
    bulk.hidden = some.length === 0;
    all.checked = count > 0 && count === some.length;
    all.indeterminate = count > 0 && count < some.length;
    bulk.querySelectorAll("[data-selected]").forEach((button) => { button.disabled = count === 0; });
  };
  all.addEventListener("change", () => {
    boxes().forEach((box) => { box.checked = all.checked; });
    show();
    keep();
  });
  document.addEventListener("change", (event) => {
    if (event.target.name !== "job") return;
    show();
    keep();
  });
  document.body.addEventListener("htmx:afterSettle", show);
  addEventListener("pageshow", () => setTimeout(restore));
  show();
})();
