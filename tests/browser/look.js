// What is wrong with the page that is shown, each as a sentence; nothing for a good one.
() => {
  const wrong = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const named = (el) => `<${el.tagName.toLowerCase()}> ${(el.textContent || el.name || el.id || "").trim().slice(0, 40)}`;
  const seen = (el) => el.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const count = (selector, least, most) => {
    const found = all(selector).filter(seen).length;
    if (found < least || found > most) wrong.push(`${found} x ${selector}`);
  };

  // Structure.
  count("h1", 1, 1);
  count("main", 1, 1);
  count("header", 1, 1);
  if (!document.title.trim() || !document.documentElement.lang) wrong.push("no title or no language");
  const ids = all("[id]").map((el) => el.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => wrong.push(`two are #${id}`));
  const levels = all("h1, h2, h3, h4").filter(seen).map((el) => Number(el.tagName[1]));
  levels.forEach((level, i) => { if (level > (levels[i - 1] ?? 0) + 1) wrong.push(`h${level} after h${levels[i - 1]}`); });

  // Names.
  const by = (el) => el.getAttribute("aria-label") ||
    (el.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join("");
  all("input:not([type=hidden]), select, textarea").filter((el) => seen(el) && !el.closest("[aria-hidden=true]")).forEach((el) => {
    const label = [...(el.labels ?? [])].map((one) => one.textContent).join("");
    if (!(by(el) + label).trim() && el.getAttribute("aria-hidden") !== "true") wrong.push(`no label: ${named(el)}`);
  });
  all("a, button, summary").filter(seen).forEach((el) => {
    if (!(by(el) + el.textContent).trim()) wrong.push(`no name: ${el.outerHTML.slice(0, 80)}`);
  });
  all("nav").filter(seen).forEach((el) => { if (!by(el).trim()) wrong.push(`a nav without a name: ${named(el)}`); });
  all("table").filter(seen).forEach((el) => { if (!el.caption?.textContent.trim()) wrong.push(`no caption: ${named(el)}`); });
  all("th").filter(seen).forEach((el) => { if (!el.scope) wrong.push(`no scope: ${named(el)}`); });
  all(".badge").filter(seen).forEach((el) => {
    if (!/[^\p{L}\s]/u.test(el.textContent) || !/\p{L}/u.test(el.textContent)) wrong.push(`colour alone: ${named(el)}`);
  });

  // Contrast of each text with what is drawn behind it.
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const ground = (el) => {
    if (!el) return rgba(getComputedStyle(document.documentElement).backgroundColor);
    const own = rgba(getComputedStyle(el).backgroundColor);
    return own[3] === 1 ? own : over(own, ground(el.parentElement));
  };
  const light = (colour) => colour.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  while (texts.nextNode()) {
    const el = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !seen(el) || el.closest(":disabled, [aria-disabled=true], option")) continue;
    const style = getComputedStyle(el);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const behind = ground(el);
    const found = ratio(over(rgba(style.color), behind), behind);
    const what = `contrast ${found.toFixed(2)}: ${style.color} on ${behind.slice(0, 3).map(Math.round)}`;
    if (found < least && !told.has(what)) {
      told.add(what);
      wrong.push(`${what}, ${named(el)}`);
    }
  }

  // Width.
  const root = document.documentElement;
  all(".top a, .top input, .top summary").filter(seen).filter((el) => el.getBoundingClientRect().right > root.clientWidth + 1)
    .forEach((el) => wrong.push(`out of the window: ${named(el)}`));
  if (root.scrollWidth > root.clientWidth) {
    const wide = all("body *").filter((el) => seen(el) && el.getBoundingClientRect().right > root.clientWidth + 1 && !el.closest(".table-box, pre, .tabs, nav, [data-scrolls]"));
    wrong.push(`scrolls sideways by ${root.scrollWidth - root.clientWidth} px: ${wide.slice(0, 3).map(named).join("; ")}`);
  }
  return wrong;
}
