"use strict";
// The curves of one job, or the metrics of several: one small chart per key. Curves of one job have
// a band from minimum to maximum, marks where an attempt began, and faintly what it did again.
// Dragging over a chart zooms in: the part is fetched again, with as many points as the whole had.
(() => {
  const root = document.getElementById("charts");
  if (!root) return;
  const jobs = JSON.parse(root.dataset.jobs);
  const several = jobs.length > 1;
  const place = document.getElementById("charts-place");
  const named = (name) => document.getElementById(`charts-${name}`);
  const selects = ["attempt", "rank"].map((name) => [name, named(name)]);
  const chosen = () => Object.fromEntries(selects.filter(([, one]) => one?.value).map(([name, one]) => [name, one.value]));
  const told = named("state");
  const MOST = 24;
  // The part that is shown, in steps or in seconds; of several jobs since each began.
  let zoom = null;
  const zoomed = (byStep) => zoom !== null && zoom.byStep === byStep;
  const within = (since) => zoom === null ? {} : {
    x: zoom.byStep ? "step" : "time",
    since: zoom.since + (zoom.byStep || !several ? 0 : since),
    until: zoom.until + (zoom.byStep || !several ? 0 : since),
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  const increase = (list) => list.every((x, i) => x !== null && (i === 0 || x > list[i - 1]));
  const stepped = (group) => named("x").value === "step" && group.curves.every(({ one }) => one.step?.length > 0 && increase(one.step));
  // What happened first comes first, once per position: the last value that was reported there.
  const sorted = (xs, columns) => {
    const last = new Map(xs.map((x, i) => [x, i]).filter(([x]) => x !== null));
    const order = [...last.keys()].sort((a, b) => a - b);
    return [order, ...columns.map((values) => order.map((x) => values[last.get(x)]))];
  };
  // A running mean that forgets, without its bias to the first values.
  const smooth = (values) => {
    const weight = Number(named("smooth").value);
    let mean = 0, seen = 0;
    return values.map((value) => {
      if (value === null || value === undefined) return value;
      mean = mean * weight + (1 - weight) * value;
      seen = seen * weight + (1 - weight);
      return mean / seen;
    });
  };
  // Several runs began at different times: their clocks start with them.
  const xs = (one, byStep, since) => byStep ? one.step : several ? one.t.map((t) => t - since) : one.t;
  const tables = (group, byStep) => {
    const found = group.curves.map(({ one, since }) => {
      const edges = group.curves.length === 1 && !several ? [one.min, one.max] : [];
      return sorted(xs(one, byStep, since), [smooth(one.avg), ...edges]);
    });
    const old = group.old && sorted(xs(group.old, byStep, 0), [group.old.avg]);
    return old ? [...found, old] : found;
  };
  const data = (group) => {
    const made = tables(group, stepped(group));
    return made.length === 1 ? made[0] : uPlot.join(made);
  };

  const clock = (s, step) => {
    const at = new Date(s * 1000).toISOString();
    return step >= 86400 ? at.slice(5, 10) : at.slice(11, step < 60 ? 19 : 16);
  };
  const extreme = (value) => value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3);
  const written = (value, digits) => value.toLocaleString(document.documentElement.lang, { maximumSignificantDigits: digits });
  // Remove rounding errors of added steps from the tick's label.
  const tick = (value) => value === null ? "" : extreme(value) ? String(Number(value.toPrecision(6)).toExponential()) : written(value, 6);
  // A dashed line where each later attempt began.
  const joins = (group, byStep) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("--ink-2");
    ctx.font = `${10 * devicePixelRatio}px system-ui`;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const join of group.joins) {
      const at = byStep ? join.step : join.t;
      const x = at === null ? NaN : u.valToPos(at, "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(String(join.attempt), x + 3 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
    }
    ctx.restore();
  };
  const choose = (byStep) => (u) => {
    const { left, width } = u.select;
    if (width < 4) return;
    enter({ byStep, since: u.posToVal(left, "x"), until: u.posToVal(left + width, "x") });
  };
  const options = (group, width) => {
    const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const line = (i, label) => ({ label, stroke: colour(`--chart-${(i % 6) + 1}`), width: 1.5, points: { show: false }, spanGaps: true, dash: i >= 6 ? [6, 3] : undefined });
    const band = group.curves.length === 1 && !several;
    const edge = { stroke: "transparent", points: { show: false }, width: 0, spanGaps: true };
    const old = { ...line(0, ""), stroke: colour("--ink-2"), alpha: 0.35, width: 1 };
    const byStep = stepped(group);
    const times = { values: (_u, splits, _axis, _space, step) => splits.map((s) => several ? tick(s) : clock(s, step)) };
    const positive = group.curves.every(({ one }) => one.min.every((value) => value === null || value > 0));
    return {
      width, height: several ? 216 : 132, legend: { show: false }, cursor: { y: false, drag: { setScale: false } },
      scales: { x: { time: false, ...(zoomed(byStep) ? { range: [zoom.since, zoom.until] } : {}) }, y: named("log").checked && positive ? { distr: 3 } : {} },
      axes: [
        { ...axis, size: 26, space: 64, ...(byStep ? {} : times) },
        { ...axis, size: 52, space: 24, values: (_u, splits) => splits.map(tick) },
      ],
      bands: band ? [{ series: [3, 2], fill: colour("--accent-soft") }] : [],
      series: [
        {}, ...group.curves.map(({ one, label, place: i }) => line(i, label ?? one.gpu ?? group.key)),
        ...(band ? [{ ...edge }, { ...edge }] : []), ...(group.old ? [old] : []),
      ],
      hooks: { draw: [joins(group, byStep)], setSelect: [choose(byStep)] },
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
    where.addEventListener("dblclick", () => enter(null));
    made.append(caption, where, note);
    place.append(made);
    return { made, value, note, where, plot: null, shape: "" };
  };
  const describe = (chart, group) => {
    const peak = root.dataset.over === "true" && group.source === "sample";
    const highest = (one) => Math.max(...one.max.filter((value) => value !== null));
    const values = group.curves.map(({ one }) => peak ? highest(one) : one.last.at(-1));
    const lasts = values.map(readable);
    const span = [Math.min, Math.max].map((end) => readable(end(...values))).join(" – ");
    chart.note.textContent = [peak ? root.dataset.peak : "", several ? "" : root.dataset[group.source]].filter(Boolean).join(", ");
    // Of several jobs, the table below has them, each with its name.
    chart.value.textContent = several ? "" : lasts.length > 2 ? span : lasts.join(" · ");
    chart.made.setAttribute("aria-label", `${group.key}: ${lasts.join(", ")}`);
  };
  const draw = (group) => {
    let chart = charts.get(group.name);
    if (!chart) charts.set(group.name, chart = figure(group));
    describe(chart, group);
    const shape = [group.curves.length, Boolean(group.old), group.joins.length, stepped(group)].join();
    if (chart.plot && chart.shape === shape) return chart.plot.setData(data(group));
    chart.plot?.destroy();
    chart.shape = shape;
    chart.plot = new uPlot(options(group, chart.where.clientWidth || 280), data(group), chart.where);
  };
  const clear = () => {
    charts.forEach((chart) => chart.plot?.destroy());
    charts.clear();
    place.replaceChildren();
  };

  // The last sample of an ended job is of a process that was exiting, and shows no memory in use.
  const alive = (one) => {
    const rows = one.t.length;
    if (root.dataset.over !== "true" || one.source !== "sample" || zoom !== null || rows < 3) return one;
    const cut = (value) => Array.isArray(value) && value.length === rows ? value.slice(0, -1) : value;
    return Object.fromEntries(Object.entries(one).map(([key, value]) => [key, cut(value)]));
  };
  const grouped = (answers) => {
    const found = new Map();
    answers.forEach((got, i) => got?.items.forEach((one) => {
      if (several && one.source !== "metric") return;
      const name = `${one.source}:${one.key}`;
      if (!found.has(name)) found.set(name, { name, key: one.key, source: one.source, curves: [], joins: [] });
      const group = found.get(name);
      const label = several ? jobs[i].label : undefined;
      group.curves.push({ one: alive(one), label, place: several ? i : group.curves.length, since: Date.parse(got.since) / 1000 });
      if (!several && one.source === "metric") {
        group.old = got.superseded.find((old) => old.key === one.key);
        group.joins = got.joins;
      }
    }));
    return [...found.values()];
  };
  document.querySelectorAll(".compare [data-tone]").forEach((sign) => { sign.style.background = colour(sign.dataset.tone); });
  let answers = [];
  let began = [];
  const show = () => {
    const groups = grouped(answers);
    root.hidden = groups.length === 0 && !Object.keys(chosen()).length;
    groups.slice(0, MOST).forEach(draw);
    const more = Math.max(0, groups.length - MOST) + answers.reduce((sum, got) => sum + (got?.left_off ?? 0), 0);
    told.textContent = more ? counted(root.dataset.more, more) : "";
  };
  const ask = async ({ url }, i) => {
    const since = Date.parse(began[i] ?? 0) / 1000;
    const answer = await fetch(`${url}?${new URLSearchParams({ ...chosen(), ...within(since) })}`, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    return answer.ok ? answer.json() : null;
  };
  let busy = false, again = false;
  const load = async () => {
    if (busy) return;
    busy = true;
    try {
      const asked = zoom;
      answers = await Promise.all(jobs.map(ask));
      began = answers.map((got, i) => got?.since ?? began[i]);
      show();
      again = asked !== zoom;
    } catch {
      // The next tick tries again.
    } finally {
      busy = false;
      if (again) load();
    }
  };
  const enter = (part) => {
    zoom = part;
    again = busy;
    named("whole").hidden = part === null;
    clear();
    show();
    load();
  };
  const redraw = () => { clear(); show(); };
  selects.forEach(([, one]) => one?.addEventListener("change", () => { clear(); load(); }));
  named("x").addEventListener("change", () => enter(null));
  named("log").addEventListener("change", redraw);
  named("whole").addEventListener("click", () => enter(null));
  named("smooth").addEventListener("input", redraw);
  let ticks = 0;
  document.body.addEventListener("refresh", () => {
    ticks += 1;
    if (ticks % (root.dataset.over === "true" ? 20 : 5) === 0) load();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 200); });
  load();
})();
