"use strict";
// Refreshes live parts, draws charts, and handles a few keys. Pages work without it.

// A sentence with a count, of the two forms that the page gives it in the reader's language.
const plurals = new Intl.PluralRules(document.documentElement.lang);
// Times are in UTC, unless somebody wants their own zone's, which only the browser knows.
const isLocal = "local" in document.documentElement.dataset;
// A time, in seconds since 1970, as ISO text.
const moment = (s) => new Date(s * 1000 - (isLocal ? new Date(s * 1000).getTimezoneOffset() * 60_000 : 0)).toISOString();
// The same at an axis whose ticks are some seconds apart.
const clock = (s, step) => step >= 86400 ? moment(s).slice(5, 10) : moment(s).slice(11, step < 60 ? 19 : 16);
const counted = (forms, count) => forms.split("|")[plurals.select(count) === "one" ? 0 : 1].replace("{count}", count);

(() => {
  const PERIOD_MS = 3000;
  // Expensive parts refresh with every fifth tick.
  const SLOWLY = 5;
  const PAUSED = "forge_paused";
  document.documentElement.classList.add("scripted");
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const button = $("#refresh");
  let paused = sessionStorage.getItem(PAUSED) === "1";
  let waiting = 0;
  let lost = false;

  // The clock: each tick makes every live part fetch itself, unless the page is hidden.
  const show = () => {
    if (!button) return;
    button.hidden = !$("[data-live]");
    const state = paused ? "off" : lost ? "lost" : "on";
    button.dataset.state = state;
    const word = $(".word", button);
    if (word.textContent === button.dataset[state]) return;
    word.textContent = $("#refresh-said").textContent = button.dataset[state];
  };
  let ticks = 1;
  let resting = false;
  const refresh = () => {
    const slowly = ticks++ % SLOWLY === 0;
    resting = !slowly;
    document.body.dispatchEvent(new Event("refresh"));
    if (slowly) document.body.dispatchEvent(new Event("refresh-slowly"));
    resting = false;
  };
  // Parts with a focused field, an open menu, a selection or something unread are left alone.
  const busy = () => {
    const at = document.activeElement;
    const marked = getSelection();
    return (at?.closest("[data-live] form") && at.matches("input, select, textarea")) ||
      $("[data-live] details.pop[open]") ||
      $("[data-live] [data-refusal]:not(:empty)") ||
      (marked.type === "Range" && marked.anchorNode?.parentElement?.closest("[data-live]"));
  };
  const tick = () => {
    if (!paused && !document.hidden && waiting === 0 && !busy()) refresh();
  };
  const pause = (value) => {
    paused = value;
    sessionStorage.setItem(PAUSED, paused ? "1" : "0");
    show();
    if (!paused) refresh();
  };
  setInterval(tick, PERIOD_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  button?.addEventListener("click", () => pause(!paused));
  show();

  // Keep the keyboard focus on the same control in the new part.
  const does = (el) => [
    el.closest("[id]").id, el.getAttribute("href"),
    el.form?.getAttribute("action"), el.form && new URLSearchParams(new FormData(el.form)),
  ].join(" ");
  const likes = (part, tag, what) => $$(tag, part).filter((el) => does(el) === what);
  let held = null;
  // How far the tables of a part were scrolled.
  let scrolled = [];
  const hold = (part) => {
    const at = document.activeElement;
    held = null;
    if (!part.contains(at)) return;
    const [tag, what, action] = [at.tagName, does(at), at.form?.getAttribute("action") ?? ""];
    const row = $$("tr, .card", part).indexOf(at.closest("tr, .card"));
    const nth = $$(`form[action="${action}"] button`, part).indexOf(at);
    held = { tag, what, action, row, nth, index: likes(part, tag, what).indexOf(at) };
  };
  const restore = (part) => {
    if (!held || document.activeElement !== document.body) return;
    const found = likes(part, held.tag, held.what);
    // After an act its button is another or gone: then what its form is for now, or its row.
    const row = $$("tr, .card", part)[held.row];
    const to = found[held.index] ?? found.at(-1) ?? $$(`form[action="${held.action}"] button`, part)[held.nth] ??
      (row && $("button, a[href], input", row)) ?? part;
    if (to === part) part.tabIndex = -1;
    to.focus({ preventScroll: true });
  };

  // Requests by htmx.
  const isLive = (event) => event.detail.elt.hasAttribute("data-live");
  const unread = (part) => $("[data-refusal]:not(:empty)", part);
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    // What has ended hardly changes; an act refreshes it all the same.
    if (isLive(event) && resting && $("[data-over]", event.detail.elt)) return event.preventDefault();
    if (isLive(event)) waiting += 1;
    else $$("[data-refusal]").forEach((where) => where.replaceChildren());
  });
  // Where an act says that it failed: beside it, until it is read or there is another act.
  const place = (elt) => $("[data-refusal]", elt.closest("form") ?? document);
  const tell = (where, text) => {
    const said = document.createElement("p");
    said.textContent = text;
    where.replaceChildren(said);
    closable(where);
  };
  const closable = (where) => {
    const close = document.createElement("button");
    [close.type, close.className, close.textContent] = ["button", "close", "×"];
    close.setAttribute("aria-label", document.body.dataset.close);
    close.addEventListener("click", () => where.replaceChildren());
    where.append(close);
  };
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.body.addEventListener(name, (event) => {
      if (isLive(event)) return;
      const where = place(event.detail.elt);
      where ? tell(where, document.body.dataset.noAnswer) : toast(document.body.dataset.noAnswer);
    });
  }
  // A part that has not changed is not sent again.
  const had = new WeakMap();
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (isLive(event) && had.has(event.detail.elt)) event.detail.headers["X-Part"] = had.get(event.detail.elt);
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (!isLive(event)) return;
    const part = event.detail.xhr.getResponseHeader("X-Part");
    if (part && !unread(event.detail.elt)) had.set(event.detail.elt, part);
    waiting = Math.max(0, waiting - 1);
    // What it shows may be gone, which the page says when it is loaded again.
    if (lost && event.detail.xhr.status === 404) return location.reload();
    lost = !event.detail.successful;
    show();
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { elt, xhr } = event.detail;
    if (xhr.status < 400 && !elt.hasAttribute("data-live")) {
      shut(null);
      if (elt.matches("form")) sessionStorage.removeItem(DRAFT);
    }
    if (xhr.status >= 400) {
      if (elt.hasAttribute("data-live")) return;
      // Show an error beside the action that failed; of a proxy in front, our own words.
      const where = place(elt) ?? $("#toasts");
      if (!xhr.getResponseHeader("X-Request-Id")) return tell(where, document.body.dataset.noAnswer);
      event.detail.target = where;
      event.detail.swapOverride = "innerHTML";
      event.detail.shouldSwap = true;
      event.detail.isError = false;
      return;
    }
    if (!isLive(event)) return;
    // It was asked for before the act that failed.
    if (unread(elt)) return event.preventDefault();
    elt.dataset.open = $$("details[open][id]", elt).map((d) => d.id).join(" ");
    scrolled = $$(".table-box", elt).map((box) => [box.scrollLeft, box.scrollTop]);
    hold(elt);
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    const elt = event.detail.elt;
    for (const id of (elt.dataset?.open ?? "").split(" ").filter(Boolean)) {
      document.getElementById(id)?.setAttribute("open", "");
    }
    if (isLive(event)) {
      $$(".table-box", elt).forEach((box, i) => scrolled[i] && box.scrollTo(...scrolled[i]));
      restore(elt);
    }
    const titled = $("[data-title]", elt);
    if (titled) document.title = `${titled.dataset.title} · Forge`;
    const where = event.detail.target;
    if (where?.matches?.("[data-refusal]:not(:empty)")) closable(where);
    // What an act shows instead of its form has the focus that the form had.
    else if (!isLive(event) && where?.id && document.activeElement === document.body) {
      where.tabIndex = -1;
      where.focus();
    }
    localize(elt);
    draw(elt);
  });
  document.body.addEventListener("said", (event) => toast(event.detail.text));

  const toast = (text) => {
    if (!text) return;
    const shown = document.createElement("div");
    shown.className = "toast";
    shown.textContent = text;
    $("#toasts").append(shown);
    setTimeout(() => shown.remove(), 5000);
  };

  const localize = (root) => (isLocal ? $$("time", root) : []).forEach((one) => {
    one.title = one.dateTime;
    one.textContent = moment(Date.parse(one.dateTime) / 1000).slice(0, 19).replace("T", " ");
  });

  // Charts: numbers come from the page, colours from the style sheet.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = new Intl.NumberFormat(document.documentElement.lang, { notation: "compact" });
  // What has no neighbour has no line to be seen by; and one time alone is not drawn from 1970 on.
  const lonely = (u, n) => [...u.data[n].keys()].filter((i) => [-1, 0, 1].every((by) => (u.data[n][i + by] ?? null) !== null === (by === 0)));
  const around = (side) => ({ data: [all] }, from, to) => all.length === 1 ? [all[0] - 1800, all[0] + 1800] : [from - side, to + side];
  const draw = (root) => $$("[data-chart]", root).forEach((figure) => {
    const place = $(".chart-place", figure);
    const { x, series, range } = JSON.parse(figure.dataset.chart);
    const bars = figure.dataset.kind !== "line";
    const daily = figure.dataset.kind === "days";
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { font, stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    place.replaceChildren();
    new uPlot({
      width: place.clientWidth, height: place.clientHeight || 168, padding: [8, 18, 0, 0],
      cursor: { y: false }, legend: { show: false },
      axes: [
        { ...axis, space: 64, size: 30, ...(daily ? { incrs: [1, 2, 7, 14, 30, 91, 365].map((days) => days * 86400) } : {}), values: (_u, splits, _axis, _space, step) => splits.map((s) => clock(s, step)) },
        // Counts are integers.
        { ...axis, size: 40, ...(bars && !daily ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] } : {}), values: (_u, splits) => splits.map((v) => number.format(v)) },
      ],
      // The first and the last bar are as broad as the others.
      scales: { x: { range: range ?? around(bars ? (x[1] - x[0]) / 2 : 0) }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
      series: [{}, ...series.map((one, i) => (bars
        ? { label: one.label, width: 0, fill: colour(one.tone), points: { show: false }, paths: uPlot.paths.bars({ size: [0.7, 40] }) }
        : { label: one.label, width: 1.5, stroke: colour(one.tone), dash: i ? [6, 3] : [], points: { size: 6, fill: colour(one.tone), filter: lonely }, spanGaps: false })),
      ],
    }, [x, ...series.map((one) => one.values)], place);
    $$("[data-tone]", figure).forEach((sign) => { sign.style.background = colour(sign.dataset.tone); });
  });
  localize(document);
  draw(document);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => draw(document), 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(document));

  // What somebody typed is kept until it has arrived: the session may have ended meanwhile. Then the
  // login leads back to the page, which puts it in again. Any other page forgets it.
  const DRAFT = "forge_draft";
  const kept = JSON.parse(sessionStorage.getItem(DRAFT) ?? "null");
  const actionOf = (form) => [
    form.getAttribute("action"),
    ...$$("input[type=hidden]:not([name=csrf], [name=idempotency_key])", form).map((el) => el.value),
  ].join(" ");
  const typed = (form) => $$("input:not([type=hidden], [type=file], [type=password]), select, textarea", form).filter((el) => el.name);
  const keep = (form) => {
    const values = typed(form).map((el) => [el.name, el.value, el.checked ?? null]);
    const key = form.elements.idempotency_key?.value;
    if (values.length) sessionStorage.setItem(DRAFT, JSON.stringify({ path: location.pathname, action: actionOf(form), values, key }));
  };
  const refill = (form) => {
    const fields = typed(form);
    kept.values.forEach(([name, value, checked], i) => {
      if (fields[i]?.name !== name) return;
      if (["checkbox", "radio"].includes(fields[i].type)) fields[i].checked = checked;
      else fields[i].value = value;
    });
    if (kept.key) form.elements.idempotency_key.value = kept.key;
    const closed = form.closest("details");
    if (closed) closed.open = true;
    $$("details", form).forEach((one) => { if (typed(one).some((el) => el.value)) one.open = true; });
  };
  if (kept && location.pathname === "/login") {
    sessionStorage.setItem(DRAFT, JSON.stringify({ ...kept, interrupted: true }));
  } else if (kept) {
    sessionStorage.removeItem(DRAFT);
    const form = kept.interrupted && kept.path === location.pathname && $$('form[method="post"]').find((one) => actionOf(one) === kept.action);
    if (form) refill(form);
  }

  // Before htmx, and also for forms in refreshed parts.
  document.addEventListener("submit", (event) => {
    const asks = event.target.dataset.confirm;
    if (asks && !confirm(asks)) {
      event.preventDefault();
      event.stopPropagation();
    } else if (event.target.method === "post" && location.pathname !== "/login" && !event.target.closest(".menu")) {
      keep(event.target);
    }
  }, true);

  // Close menus when the focus leaves them.
  const shut = (except) => $$("details.menu[open], details.pop[open]").forEach((one) => {
    if (one.contains(except)) return;
    if (!except && one.contains(document.activeElement)) $("summary", one).focus();
    one.open = false;
  });
  document.addEventListener("click", (event) => shut(event.target));

  // Copy a text; if the page may not copy, select it.
  document.addEventListener("click", async (event) => {
    const copier = event.target.closest("[data-copy]");
    if (!copier) return;
    const text = document.getElementById(copier.dataset.copy);
    getSelection().selectAllChildren(text);
    await navigator.clipboard?.writeText(text.textContent).then(() => toast(copier.dataset.done), () => {});
  });

  // On a phone, the navigation is wider than the screen.
  $(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Keyboard shortcuts; single keys can be turned off, for those who dictate.
  const SILENT = "forge_no_single_keys";
  const keys = $("#single-keys");
  if (keys) {
    keys.checked = localStorage.getItem(SILENT) !== "1";
    keys.addEventListener("change", () => localStorage.setItem(SILENT, keys.checked ? "0" : "1"));
  }
  let before = "";
  const help = $("#help");
  $("[data-help]")?.addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k" && $("[data-find]")) {
      event.preventDefault();
      return $("[data-find]").focus();
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") shut(null);
    if (event.target.matches("input, select, textarea, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (keys && !keys.checked) return;
    const after = before;
    before = event.key;
    if (after === "g") {
      const link = $(`nav [data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      before = "";
    } else if (event.key === "/") {
      event.preventDefault();
      ($("[data-filter]") ?? $("[data-find]"))?.focus();
    } else if (event.key === "?") {
      help?.showModal();
    } else if (event.key === "p" && button) {
      pause(!paused);
    }
  });
})();
