"use strict";
// Counts the selected jobs, and selects a page. Boxes and buttons work without it.
(() => {
  const bulk = document.getElementById("bulk");
  if (!bulk) return;
  const all = document.getElementById("select-all");
  const told = document.getElementById("selected");
  const boxes = () => [...document.querySelectorAll('input[name="job"][form="bulk"]')];
  const show = () => {
    const some = boxes();
    const count = some.filter((box) => box.checked).length;
    told.textContent = count ? told.dataset.some.replace("{count}", count) : told.dataset.none;
    all.checked = count > 0 && count === some.length;
    all.indeterminate = count > 0 && count < some.length;
    bulk.querySelectorAll("[data-selected]").forEach((button) => { button.disabled = count === 0; });
  };
  all.addEventListener("change", () => {
    boxes().forEach((box) => { box.checked = all.checked; });
    show();
  });
  document.addEventListener("change", (event) => { if (event.target.name === "job") show(); });
  document.body.addEventListener("htmx:afterSettle", show);
  // Also when the browser comes back to the page, and has put in what was selected.
  addEventListener("pageshow", () => setTimeout(show));
  show();
})();
