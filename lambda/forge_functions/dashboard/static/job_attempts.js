"use strict";
// Attempts that begin after the page was loaded can be chosen too.
(() => {
  const choices = document.querySelectorAll("#log-attempt, #charts-attempt");
  const offer = (number) => choices.forEach((select) => {
    if ([...select.options].some((option) => option.value === number)) return;
    select.options[0].after(new Option(number, number));
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    // Newest first, like the table.
    [...document.querySelectorAll(".attempts [data-attempt]")].reverse().forEach((row) => offer(row.dataset.attempt));
  });
})();
