"use strict";
// The curves of an attempt: one small chart per key, one line per GPU.
(() => {
  const root = document.getElementById("charts");
  if (!root) return;
  const place = document.getElementById("charts-place");
  const selects = ["attempt", "rank"].map((name) => [name, document.getElementById(`charts-${name}`)]);
  const chosen = () => Object.fromEntries(selects.filter(([, one]) => one?.value).map(([name, one]) => [name, one.value]));
  const told = document.getElementById("charts-state");
  const MOST = 24;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  const grouped = (items) => {
    const found = new Map();
    for (const item of items) {
      const name = `${item.source}:${item.key}`;
      if (!found.has(name)) found.set(name, { name, key: item.key, source: item.source, curves: [] });
      found.get(name).curves.push(item);
    }
    return [...found.values()];
  };
  // By step if every value has one and they increase, otherwise by time.
  const stepped = (one) => one.step?.length > 0 && one.step.every((step, i) => step !== null && (i === 0 || step > one.step[i - 1]));
  const data = (curves) => curves.length === 1
    ? [stepped(curves[0]) ? curves[0].step : curves[0].t, curves[0].avg, curves[0].min, curves[0].max]
    : uPlot.join(curves.map((one) => [one.t, one.avg]));
  // All times are in UTC.
  const clock = (s, step) => {
    const at = new Date(s * 1000).toISOString();
    return step >= 86400 ? at.slice(5, 10) : at.slice(11, step < 60 ? 19 : 16);
  };
  const extreme = (value) => value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3);
  const written = (value, digits) => value.toLocaleString(document.documentElement.lang, { maximumSignificantDigits: digits });
  // Remove rounding errors of added steps from the tick's label.
  const tick = (value) => extreme(value) ? String(Number(value.toPrecision(6)).toExponential()) : written(value, 6);
  const options = (group, width) => {
    const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const line = (i, label) => ({ label, stroke: colour(`--chart-${(i % 6) + 1}`), width: 1.5, points: { show: false }, spanGaps: true });
    const single = group.curves.length === 1;
    const edge = { stroke: "transparent", points: { show: false }, width: 0 };
    const byStep = single && stepped(group.curves[0]);
    const times = { values: (_u, splits, _axis, _space, step) => splits.map((s) => clock(s, step)) };
    return {
      width, height: 132, legend: { show: false }, cursor: { y: false },
      scales: { x: { time: !byStep } },
      axes: [
        { ...axis, size: 26, space: 64, ...(byStep ? {} : times) },
        { ...axis, size: 52, space: 24, values: (_u, splits) => splits.map(tick) },
      ],
      bands: single ? [{ series: [3, 2], fill: colour("--accent-soft") }] : [],
      series: [{}, ...(single ? [line(0, group.key), { ...edge }, { ...edge }] : group.curves.map((one, i) => line(i, one.gpu ?? group.key)))],
    };
  };
  const readable = (value) => value === null || value === undefined ? "–"
    : extreme(value) ? value.toExponential(2) : written(value, 4);
  const figure = (group) => {
    const made = document.createElement("figure");
    made.className = "chart small";
    const caption = document.createElement("figcaption");
    const name = document.createElement("span");
    name.className = "mono";
    name.textContent = group.key;
    const value = document.createElement("span");
    value.className = "value";
    const note = document.createElement("span");
    note.className = "note";
    caption.append(name, value);
    const where = document.createElement("div");
    where.className = "chart-place";
    made.append(caption, where, note);
    place.append(made);
    return { made, value, note, where, plot: null, curves: 0 };
  };
  const draw = (group) => {
    let chart = charts.get(group.name);
    if (!chart) charts.set(group.name, chart = figure(group));
    // The last sample of an ended job is of a process that was exiting.
    const peak = root.dataset.over === "true" && group.source === "sample";
    const highest = (one) => Math.max(...one.max.filter((value) => value !== null));
    const lasts = group.curves.map((one) => readable(peak ? highest(one) : one.last.at(-1)));
    chart.note.textContent = [peak ? root.dataset.peak : "", root.dataset[group.source]].filter(Boolean).join(", ");
    chart.value.textContent = lasts.slice(0, 4).join(" · ");
    chart.made.setAttribute("aria-label", `${group.key}: ${lasts.join(", ")}`);
    if (chart.plot && chart.curves === group.curves.length) return chart.plot.setData(data(group.curves));
    chart.plot?.destroy();
    chart.curves = group.curves.length;
    chart.plot = new uPlot(options(group, chart.where.clientWidth || 280), data(group.curves), chart.where);
  };
  const clear = () => {
    charts.forEach((chart) => chart.plot?.destroy());
    charts.clear();
    place.replaceChildren();
  };
  const show = (got) => {
    const groups = grouped(got.items);
    root.hidden = groups.length === 0 && !Object.keys(chosen()).length;
    groups.slice(0, MOST).forEach(draw);
    const more = Math.max(0, groups.length - MOST) + (got.left_off ?? 0);
    told.textContent = more ? counted(root.dataset.more, more) : "";
  };
  let busy = false;
  const load = async () => {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(`${root.dataset.url}?${new URLSearchParams(chosen())}`, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
      if (answer.ok) show(await answer.json());
    } catch {
      // The next tick tries again.
    } finally {
      busy = false;
    }
  };
  selects.forEach(([, one]) => one?.addEventListener("change", () => { clear(); load(); }));
  let ticks = 0;
  document.body.addEventListener("refresh", () => {
    ticks += 1;
    if (ticks % (root.dataset.over === "true" ? 20 : 5) === 0) load();
  });
  const anew = () => { clear(); load(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(anew, 200); });
  load();
})();
