"use strict";
// An attempt that begins after the page was loaded can be chosen as well.
(() => {
  const choices = document.querySelectorAll("#log-attempt, #charts-attempt");
  const offer = (number) => choices.forEach((select) => {
    if ([...select.options].some((option) => option.value === number)) return;
    select.options[0].after(new Option(number, number));
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    // The table begins with the newest, and so do the choices.
    [...document.querySelectorAll(".attempts [data-attempt]")].reverse().forEach((row) => offer(row.dataset.attempt));
  });
})();
