"use strict";
// The curves of one job, or the metrics of several: one small chart per key. Curves of one job have
// a band from minimum to maximum, marks where an attempt began, and faintly what it did again.
// A gap is where a metric was no finite number. Where one points, a chart says what it has there.
// Dragging over a chart zooms in: the part is fetched again, with as many points as the whole had.
// The address says what is shown, so that it can be sent to somebody.
(() => {
  const root = document.getElementById("charts");
  if (!root) return;
  const jobs = JSON.parse(root.dataset.jobs);
  const several = jobs.length > 1;
  const place = document.getElementById("charts-place");
  const named = (name) => document.getElementById(`charts-${name}`);
  const selects = ["attempt", "rank", "contains"].map((name) => [name, named(name)]);
  const chosen = () => Object.fromEntries(selects.filter(([, one]) => one?.value).map(([name, one]) => [name, one.value]));
  const told = named("state");
  const titles = JSON.parse(root.dataset.names);
  const counters = JSON.parse(root.dataset.counters);
  // At most so many charts of metrics, and the filter once there are more than a few.
  const MOST = 24, FEW = 6;
  const address = new URLSearchParams(location.search);
  const [since, until] = ["since", "until"].map((name) => parseFloat(address.get(name)));
  named("x").value = address.get("x") === "time" ? "time" : "step";
  named("smooth").value = address.get("smooth") ?? "0";
  named("log").checked = address.has("log");
  // The part that is shown, in steps or in seconds; of several jobs since each began.
  let zoom = until > since ? { byStep: named("x").value === "step", since, until } : null;
  named("whole").hidden = zoom === null;
  const remember = () => {
    const now = new URLSearchParams(location.search);
    const said = {
      x: named("x").value === "time" ? "time" : null, since: zoom?.since, until: zoom?.until,
      smooth: named("smooth").value === "0" ? null : named("smooth").value, log: named("log").checked ? "1" : null,
    };
    Object.entries(said).forEach(([name, value]) => value === null || value === undefined ? now.delete(name) : now.set(name, value));
    history.replaceState(history.state, "", `${location.pathname}${now.size ? `?${now}` : ""}${location.hash}`);
  };
  const zoomed = (byStep) => zoom !== null && zoom.byStep === byStep;
  const within = (origin) => zoom === null ? {} : {
    x: zoom.byStep ? "step" : "time",
    since: zoom.since + (zoom.byStep ? 0 : origin),
    until: zoom.until + (zoom.byStep ? 0 : origin),
  };
  // No two curves of a chart have colour and dashes in common, and the first five differ in dashes.
  const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]];
  const looks = (i) => ({ stroke: colour(`--chart-${(i % 6) + 1}`), dash: DASHES[i % DASHES.length] });
  const sign = ({ stroke, dash }) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
    set(made, { viewBox: "0 0 24 8", width: 24, height: 8, "aria-hidden": "true" });
    set(line, { x1: 0, x2: 24, y1: 4, y2: 4, stroke, "stroke-width": 3, "stroke-dasharray": dash?.join(" ") ?? "" });
    made.append(line);
    return made;
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map();

  // A chart is by time only if it has no steps at all; else, lines without one are left out.
  const hasSteps = ({ one }) => one.step.some((step) => step !== null);
  const stepped = (group) => named("x").value === "step" && group.curves.some(hasSteps);
  const values = (group) => group.curves.flatMap(({ one }) => [...one.min, ...one.max]).filter((value) => value !== null);
  const logarithmic = (group) => named("log").checked && values(group).some((value) => value > 0);
  // What happened first comes first, once per position: the last value that was reported there.
  const sorted = (xs, ys) => {
    const last = new Map(xs.map((x, i) => [x, i]).filter(([x]) => x !== null));
    const order = [...last.keys()].sort((a, b) => a - b);
    return [order, order.map((x) => ys[last.get(x)])];
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
  // The lines of a chart: its curves, each with what is smoothed or summed up in it, and what
  // attempts had measured before later ones did it again.
  const lines = (group, byStep, log) => {
    // Several runs began at different times: their clocks start with them.
    const line = (one, ys, look, origin = 0) => ({
      look, points: sorted(byStep ? one.step : one.t.map((t) => t - origin), log ? ys.map((y) => y > 0 ? y : null) : ys),
    });
    const plain = { stroke: "transparent", width: 0, edge: true };
    const current = group.curves.flatMap(({ one, label, place: i, origin }) => {
      const look = { label: label ?? one.gpu ?? group.key, ...looks(i), width: 1.5 };
      const raw = line(one, one.avg, look, origin);
      if (named("smooth").value === "0") return [raw];
      return [line(one, smooth(one.avg), look, origin), { ...raw, look: { ...look, alpha: 0.3, width: 1, raw: true } }];
    });
    const [{ one }] = group.curves;
    const edges = banded(group) ? [line(one, one.max, plain), line(one, one.min, plain)] : [];
    const old = group.old.map((its) => line(its, its.avg, { label: `${root.dataset.attempt} ${its.attempt}`, stroke: colour("--ink-2"), alpha: 0.35, width: 1 }));
    // What is drawn later lies above: the band would hide the curve that it belongs to.
    return [...edges, ...old, ...current];
  };
  const banded = (group) => group.curves.length === 1 && !several;

  const extreme = (value) => value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3);
  const written = (value, digits) => value.toLocaleString(document.documentElement.lang, { maximumSignificantDigits: digits });
  // Remove rounding errors of added steps from the tick's label.
  const tick = (value) => value === null ? "" : extreme(value) ? String(Number(value.toPrecision(6)).toExponential()) : written(value, 6);
  // A dashed line where each later attempt began.
  const joins = (chart, byStep) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = colour("--ink-2");
    ctx.font = `600 ${11 * devicePixelRatio}px system-ui`;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    for (const join of chart.group.joins) {
      const at = byStep ? join.step : join.t;
      const x = at === null ? NaN : u.valToPos(at, "x", true);
      if (!(x >= bbox.left && x <= bbox.left + bbox.width)) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const number = String(join.attempt);
      ctx.fillStyle = colour("--card");
      ctx.fillRect(x - 1, bbox.top, ctx.measureText(number).width + 6 * devicePixelRatio, 14 * devicePixelRatio);
      ctx.fillStyle = colour("--ink");
      ctx.fillText(number, x + 2 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
    }
    ctx.restore();
  };
  // Who only clicks marks hardly anything; who marks by keyboard means it.
  const choose = (byStep, least = 4) => (u) => {
    const { left, width } = u.select;
    if (width < least) return;
    enter({ byStep, since: u.posToVal(left, "x"), until: u.posToVal(left + width, "x") });
  };
  // The index of the point of a line that is nearest to another index, if it is near enough.
  const NEAR = 24;
  const nearest = (u, line, at) => {
    const ys = u.data[line], place = (i) => u.valToPos(u.data[0][i], "x");
    const near = (i) => i >= 0 && i < ys.length && Math.abs(place(i) - place(at)) <= NEAR;
    for (let away = 0; near(at - away) || near(at + away); away += 1) {
      const found = [at - away, at + away].find((i) => near(i) && ys[i] !== undefined);
      if (found !== undefined) return found;
    }
    return null;
  };
  const where = (x, byStep) => byStep ? `${root.dataset.step} ${tick(x)}` : several ? `${written(x, 4)} s` : moment(x).slice(5, 19).replace("T", " ");
  // What a chart has where one points at.
  const read = (chart, byStep) => (u) => {
    const { idx, left } = u.cursor;
    chart.readout.hidden = !(left >= 0) || idx === null || idx === undefined;
    if (chart.readout.hidden) return;
    const shown = chart.lines.map(({ look }) => look);
    const value = (i) => { const at = nearest(u, i + 1, idx); return at === null ? undefined : readable(u.data[i + 1][at]); };
    const rows = shown.flatMap((look, i) => {
      if (look.edge || look.raw || value(i) === undefined) return [];
      const row = document.createElement("div"), name = document.createElement("span"), number = document.createElement("b");
      name.textContent = look.label;
      number.textContent = shown[i + 1]?.raw ? `${value(i)} (${value(i + 1)})` : value(i);
      row.append(sign(look), name, number);
      return [row];
    });
    const head = document.createElement("div");
    head.textContent = where(u.data[0][idx], byStep);
    chart.readout.replaceChildren(head, ...rows);
    const from = u.over.offsetLeft + left, wide = chart.readout.offsetWidth;
    const beside = left > u.over.clientWidth / 2 ? from - wide - 12 : from + 12;
    const within = Math.max(0, Math.min(beside, chart.where.clientWidth - wide));
    chart.readout.style.transform = `translate(${within}px, ${chart.where.offsetTop}px)`;
  };
  // A point with a gap on both sides has no line to be seen by.
  const lonely = (u, series) => {
    const said = [...u.data[series].entries()].filter(([, y]) => y !== undefined);
    return said.filter(([, y], n) => y !== null && [said[n - 1], said[n + 1]].every((next) => (next?.[1] ?? null) === null)).map(([i]) => i);
  };
  // Around a single value, the library would draw all that lies between zero and it.
  const around = ({ data: [all] }, from, to) => all.length === 1 ? [all[0] - 1, all[0] + 1] : [from, to];
  // A clock has whole seconds, minutes, hours and days.
  const TICKS = [1, 60, 3600].flatMap((unit) => [1, 2, 5, 10, 15, 30].map((n) => n * unit)).concat([6, 12, 24, 48, 96, 240, 720, 2400, 8640].map((h) => h * 3600));
  // Steps are counted, and so are metrics that are whole numbers throughout: no tick lies between two.
  const WHOLE = [...Array(16).keys()].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power));
  // As broad as its longest tick.
  const broad = (_u, ticks) => Math.max(52, ...(ticks ?? []).map((text) => 7 * text.length + 10));
  const options = (chart, width, byStep, log) => {
    const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const times = { ...(several ? {} : { incrs: TICKS }), values: (_u, splits, _axis, _space, step) => splits.map((s) => several ? tick(s) : clock(s, step)) };
    const points = { show: false, size: 5, filter: lonely };
    return {
      width, height: several ? 216 : 132, legend: { show: false },
      cursor: { y: false, drag: { setScale: false }, dataIdx: (u, line, at) => line === 0 ? at : nearest(u, line, at) ?? at },
      scales: { x: { time: false, range: zoomed(byStep) ? [zoom.since, zoom.until] : around }, y: log ? { distr: 3 } : {} },
      axes: [
        { ...axis, size: 26, space: 64, ...(byStep ? { incrs: WHOLE } : times) },
        { ...axis, size: broad, space: 24, ...(!log && values(chart.group).every(Number.isSafeInteger) ? { incrs: WHOLE } : {}), values: (_u, splits) => splits.map(tick) },
      ],
      bands: banded(chart.group) ? [{ series: [1, 2], fill: colour("--accent-soft") }] : [],
      series: [{}, ...chart.lines.map(({ look }) => ({ ...look, points: look.edge ? { show: false } : points }))],
      hooks: { draw: [joins(chart, byStep)], setSelect: [choose(byStep)], setCursor: [read(chart, byStep)] },
    };
  };

  const readable = (value) => value === null || value === undefined ? "–"
    : typeof value === "string" ? value : extreme(value) ? value.toExponential(2) : written(value, 4);
  const figure = (group) => {
    const made = document.createElement("figure");
    made.className = "chart small";
    const caption = document.createElement("figcaption");
    const name = document.createElement("span");
    // What the worker measures has a name in words, what the job writes the name that it gave.
    const title = (group.source === "sample" && titles[group.key]) || group.key;
    if (title === group.key) name.className = "mono";
    name.textContent = name.title = title;
    const value = document.createElement("span");
    value.className = "value";
    const note = document.createElement("span");
    note.className = "note";
    caption.append(name, value);
    const where = document.createElement("div");
    where.className = "chart-place";
    where.tabIndex = 0;
    where.setAttribute("role", "group");
    where.setAttribute("aria-label", title);
    const readout = document.createElement("div");
    readout.className = "readout";
    readout.hidden = true;
    made.append(caption, where, note, readout);
    const chart = { made, value, note, where, readout, plot: null, shape: "" };
    where.addEventListener("dblclick", () => enter(null));
    where.addEventListener("keydown", (event) => step(event, chart));
    where.addEventListener("blur", () => chart.plot?.setCursor({ left: -10, top: -10 }));
    place.append(made);
    // What is made anew keeps the focus.
    if (group.name === focused) where.focus({ preventScroll: true });
    return chart;
  };
  // The arrow keys go from point to point, Page Up and Page Down over a tenth of them, Home and End
  // to the ends; with Shift they mark a part, and Enter zooms into it.
  const step = (event, chart) => {
    const { plot } = chart;
    if (!plot?.data[0].length) return;
    if (event.key === "Enter") return choose(stepped(chart.group), 1)(plot);
    if (event.key === "Escape") return plot.select.width ? mark(plot, 0, 0) : zoom && enter(null);
    const last = plot.data[0].length - 1, tenth = Math.ceil(last / 10);
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -tenth, PageDown: tenth, Home: -Infinity, End: Infinity }[event.key];
    if (!by) return;
    event.preventDefault();
    const from = plot.cursor.idx ?? (by > 0 ? -1 : last + 1);
    const left = (i) => plot.valToPos(plot.data[0][Math.min(Math.max(i, 0), last)], "x");
    if (!event.shiftKey) chart.marked = null;
    else chart.marked ??= left(from);
    const to = left(Math.min(Math.max(from + by, 0), last));
    mark(plot, Math.min(chart.marked ?? to, to), Math.abs((chart.marked ?? to) - to));
    plot.setCursor({ left: to, top: 0 });
    // One place tells of all charts what is read from them by keyboard.
    const read = [...chart.readout.children].map((row) => row.innerText.replace(/\s+/g, " "));
    named("said").textContent = `${chart.group.key}: ${read.join(", ")}`;
  };
  const mark = (plot, left, width) => plot.setSelect({ left, width, top: 0, height: width ? plot.over.clientHeight : 0 }, false);
  const unusual = (group, byStep, log) => {
    const stepless = byStep && several ? group.curves.filter((curve) => !hasSteps(curve)).map(({ label }) => label) : [];
    return [
      values(group).length ? "" : root.dataset.nothing,
      named("x").value === "step" && !byStep && group.source === "metric" ? root.dataset.byTime : "",
      stepless.length ? `${root.dataset.stepless}: ${stepless.join(", ")}` : "",
      named("log").checked && !log ? root.dataset.linear : "",
      log && values(group).some((value) => value <= 0) ? root.dataset.positive : "",
    ];
  };
  const describe = (chart, group, notes) => {
    const peak = root.dataset.over === "true" && group.source === "sample";
    const highest = (one) => Math.max(...one.max.filter((value) => value !== null));
    // A job that diverged ends with NaN, where the curve has a gap.
    const ended = (one) => (zoom === null ? one.newest : null) ?? one.last.at(-1);
    const said = group.curves.map(({ one }) => peak ? highest(one) : ended(one));
    const lasts = said.map(readable);
    const span = [Math.min, Math.max].map((end) => readable(end(...said))).join(" – ");
    chart.note.textContent = [peak ? root.dataset.peak : "", several ? "" : root.dataset[group.source], ...notes].filter(Boolean).join(", ");
    // Of several jobs, the table below has them, each with its name.
    chart.value.textContent = several ? "" : lasts.length > 2 ? span : lasts.join(" · ");
    chart.made.setAttribute("aria-label", `${group.key}: ${lasts.join(", ")}`);
  };
  const draw = (group) => {
    let chart = charts.get(group.name);
    if (!chart) charts.set(group.name, chart = figure(group));
    const byStep = stepped(group), log = logarithmic(group);
    chart.group = group;
    chart.lines = lines(group, byStep, log);
    describe(chart, group, unusual(group, byStep, log));
    const data = uPlot.join(chart.lines.map(({ points }) => points));
    const shape = [chart.lines.map(({ look }) => look.label), byStep, log].join();
    if (chart.plot && chart.shape === shape) return chart.plot.setData(data);
    chart.plot?.destroy();
    chart.shape = shape;
    chart.plot = new uPlot(options(chart, chart.where.clientWidth || 280, byStep, log), data, chart.where);
  };
  let focused = null;
  const clear = () => {
    focused = [...charts.values()].find(({ where }) => where === document.activeElement)?.group.name ?? focused;
    charts.forEach((chart) => {
      chart.plot?.destroy();
      chart.plot = null;
    });
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
      if (several && (one.source !== "metric" || hidden.has(i))) return;
      const name = `${one.source}:${one.key}`;
      if (!found.has(name)) found.set(name, { name, key: one.key, source: one.source, curves: [], joins: [], old: [] });
      const group = found.get(name);
      const label = several ? jobs[i].label : undefined;
      group.curves.push({ one: alive(one), label, place: several ? i : group.curves.length, origin: several ? Date.parse(got.began) / 1000 : 0 });
      if (!several && one.source === "metric") {
        group.old = got.superseded.filter((old) => old.key === one.key);
        group.joins = got.joins;
      }
    }));
    return [...found.values()];
  };
  // The jobs whose curves are hidden.
  const hidden = new Set();
  const legend = named("legend");
  const markColumns = () => document.querySelectorAll("[data-curve]").forEach((column) => column.replaceChildren(sign(looks(Number(column.dataset.curve)))));
  const drawSigns = () => {
    legend?.replaceChildren(...jobs.map(({ label }, i) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      button.append(sign(looks(i)), label);
      button.addEventListener("click", () => {
        hidden.has(i) ? hidden.delete(i) : hidden.add(i);
        button.setAttribute("aria-pressed", String(!hidden.has(i)));
        redraw();
      });
      item.append(button);
      return item;
    }));
    markColumns();
  };
  let answers = [];
  let began = [];
  const show = () => {
    const groups = grouped(answers);
    root.hidden = groups.length === 0 && !Object.keys(chosen()).length;
    // A loss first, and at last what only counts.
    const rank = ({ key }) => counters.includes(key) ? 2 : key.includes("loss") ? 0 : 1;
    const metrics = groups.filter(({ source }) => source === "metric").sort((a, b) => rank(a) - rank(b));
    const devices = groups.filter(({ source }) => source === "sample");
    place.querySelectorAll(".expected").forEach((one) => one.remove());
    [...metrics.slice(0, MOST), ...devices].forEach(draw);
    const more = Math.max(0, metrics.length - MOST) + Math.max(...answers.map((got) => got?.left_off ?? 0));
    named("contains").parentElement.hidden = metrics.length <= FEW && !named("contains").value;
    told.textContent = more ? counted(root.dataset.more, more) : "";
  };
  const ask = async ({ url }, i) => {
    const origin = several ? Date.parse(began[i] ?? 0) / 1000 : 0;
    const answer = await fetch(`${url}?${new URLSearchParams({ ...chosen(), ...within(origin) })}`, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    return answer.ok ? answer.json() : null;
  };
  // How often another part was asked for, so that an answer that comes late is not shown.
  let busy = false, wanted = 0;
  const load = async () => {
    if (busy) return;
    busy = true;
    const asked = wanted;
    try {
      const got = await Promise.all(jobs.map(ask));
      if (asked === wanted) {
        answers = got;
        began = answers.map((one, i) => one?.began ?? began[i]);
        show();
      }
    } catch {
      // The next tick tries again.
    } finally {
      busy = false;
      if (asked !== wanted) load();
    }
  };
  const reload = () => {
    wanted += 1;
    clear();
    load();
  };
  const enter = (part) => {
    zoom = part;
    named("whole").hidden = part === null;
    remember();
    reload();
    show();
  };
  const redraw = () => { clear(); show(); };
  let typed;
  selects.forEach(([, one]) => one?.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(reload, one.tagName === "INPUT" ? 250 : 0);
  }));
  named("x").addEventListener("change", () => enter(null));
  named("log").addEventListener("change", () => { remember(); redraw(); });
  named("whole").addEventListener("click", () => enter(null));
  named("smooth").addEventListener("input", redraw);
  named("smooth").addEventListener("change", remember);
  let ticks = 0;
  document.body.addEventListener("refresh", () => {
    ticks += 1;
    if (ticks % (root.dataset.over === "true" ? 20 : 5) === 0) load();
  });
  document.body.addEventListener("htmx:afterSettle", markColumns);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawSigns(); redraw(); });
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(redraw, 200); });
  drawSigns();
  load();
})();
