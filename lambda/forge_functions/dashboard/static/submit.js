"use strict";
// Ignore a second click while the first is in progress; the form's key would make it harmless.
(() => {
  const form = document.querySelector("form.submit");
  form?.addEventListener("submit", () => {
    const button = form.querySelector("button.primary");
    setTimeout(() => { button.disabled = true; });
    addEventListener("pageshow", () => { button.disabled = false; });
  });
})();
