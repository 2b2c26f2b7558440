"use strict";
// Ignore a second click while the first is in progress; the form's key would make it harmless. What
// was typed is kept until it has arrived: a session may have ended meanwhile.
(() => {
  const DRAFT = "forge_draft";
  const form = document.querySelector("form.submit");
  if (!form) return;
  const draft = sessionStorage.getItem(DRAFT);
  // Any other page forgets it, so it is there only after a login.
  if (draft) {
    for (const [name, value] of JSON.parse(draft)) {
      const field = form.elements[name];
      if (field && field.type !== "file" && name !== "csrf") field.value = value;
    }
  }
  sessionStorage.removeItem(DRAFT);
  form.addEventListener("submit", () => {
    const given = [...new FormData(form)].filter(([name, value]) => name !== "csrf" && typeof value === "string");
    sessionStorage.setItem(DRAFT, JSON.stringify(given));
    const button = form.querySelector("button.primary");
    setTimeout(() => { button.disabled = true; });
    addEventListener("pageshow", () => { button.disabled = false; });
  });
})();
