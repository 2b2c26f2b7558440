"use strict";
// Ignore a second click while the first is in progress; the form's key would make it harmless.
(() => {
  const form = document.querySelector("form.submit");
  const button = form?.querySelector("button.primary");
  form?.addEventListener("submit", () => {
    setTimeout(() => { button.disabled = true; });
    addEventListener("pageshow", () => { button.disabled = false; });
  });
})();
