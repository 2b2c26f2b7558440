"use strict";
// A job's output: the tail first, then new output, each byte once; text only, colours by class.
(() => {
  const root = document.getElementById("log");
  if (!root) return;
  const $ = (id) => document.getElementById(id);
  const lines = $("log-lines");
  const earlier = $("log-earlier");
  const told = $("log-state");
  const follow = $("log-follow");
  const words = lines.dataset;
  const MOST_LINES = 20000;
  const LONGEST_LINE = 4000;
  const MOST_ROWS = 100;

  // Turns bytes into lines: a carriage return restarts the line; escapes become classes or are removed.
  class Writer {
    constructor(place) {
      this.place = place;
      this.decoder = null;
      this.token = null;
      this.attempt = null;
      this.style = { colour: "", bold: false };
      this.line = null;
      this.rest = "";
    }
    write(piece) {
      if (piece.token !== this.token) {
        this.decoder = new TextDecoder();
        this.token = piece.token;
        this.line = null;
        this.rest = "";
        this.style = { colour: "", bold: false };
      }
      if (piece.attempt !== this.attempt) {
        this.attempt = piece.attempt;
        this.mark(words.attempt.replace("{number}", piece.attempt));
      }
      if (piece.missing) this.mark(counted(words.missing, piece.missing));
      const bytes = Uint8Array.from(atob(piece.data), (c) => c.charCodeAt(0));
      this.text(this.decoder.decode(bytes, { stream: true }));
    }
    mark(text) {
      const shown = document.createElement("span");
      shown.className = "log-mark";
      shown.textContent = text;
      this.place.append(shown);
      this.line = null;
    }
    text(more) {
      let text = this.rest + more;
      // An incomplete escape sequence.
      const open = text.search(/(\x1b(\[[0-9;?]*)?|\x1b\][^\x07\x1b\r\n]{0,2000}\x1b?)$/);
      this.rest = open >= 0 ? text.slice(open) : "";
      text = open >= 0 ? text.slice(0, open) : text;
      const token = /\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]|\n|\r|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
      let at = 0;
      for (const found of text.matchAll(token)) {
        this.plain(text.slice(at, found.index));
        at = found.index + found[0].length;
        if (found[0] === "\n") this.end();
        else if (found[0] === "\r") this.returned = true;
        else if (found[2] === "m") this.restyle(found[1]);
        else if (found[2] === "K") this.erase(found[1]);
        else if (found[2] === "A") this.rise(Math.min(Number(found[1]) || 1, MOST_ROWS));
      }
      this.plain(text.slice(at));
    }
    plain(text) {
      if (!text) return;
      if (!this.line) this.begin();
      else if (this.returned) this.anew();
      const room = LONGEST_LINE - this.length;
      if (text.length > room) {
        this.over += text.length - Math.max(room, 0);
        text = text.slice(0, Math.max(room, 0));
        if (!this.cut) {
          this.cut = document.createElement("span");
          this.cut.className = "log-cut";
          this.line.append(this.cut);
        }
        this.cut.textContent = " … " + counted(words.cut, this.over);
      }
      if (!text) return;
      this.length += text.length;
      const styled = this.style.colour || this.style.bold;
      const node = styled ? document.createElement("span") : document.createTextNode(text);
      if (styled) {
        node.textContent = text;
        node.className = [this.style.colour, this.style.bold ? "ansi-bold" : ""].filter(Boolean).join(" ");
      }
      this.line.insertBefore(node, this.cut);
    }
    begin() {
      this.line = document.createElement("span");
      this.line.className = "log-line";
      this.place.append(this.line);
      this.anew();
    }
    end() {
      if (!this.line) this.begin();
      this.turn(this.line.nextElementSibling);
    }
    // Several bars, one below the other, go up to the first and write all of them again.
    rise(by) {
      for (; by > 0; by -= 1) {
        const above = this.line ? this.line.previousElementSibling : this.place.lastElementChild;
        if (above?.classList.contains("log-line")) this.turn(above);
      }
    }
    // What is written to a line that was there replaces it; below the last, a line begins.
    turn(line) {
      this.line = line;
      this.returned = line !== null;
    }
    // From the line's beginning to the cursor (1), from there to the end (0), or all (2).
    erase(what) {
      if (this.line && (what === "2" || (what === "1") !== this.returned)) this.anew();
    }
    anew() {
      this.line.replaceChildren();
      this.returned = false;
      this.length = 0;
      this.over = 0;
      this.cut = null;
    }
    restyle(codes) {
      for (const code of (codes || "0").split(";").map(Number)) {
        if (code === 0) this.style = { colour: "", bold: false };
        else if (code === 1) this.style.bold = true;
        else if (code === 22) this.style.bold = false;
        else if (code === 39) this.style.colour = "";
        else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) this.style.colour = `ansi-${code % 10}`;
      }
    }
  }

  let writer, first, last, busy, asked, over, turn = 0;
  const address = (place) => {
    const query = new URLSearchParams(place);
    for (const name of ["attempt", "rank"]) {
      const chosen = $(`log-${name}`)?.value;
      if (chosen) query.set(name, chosen);
    }
    return `${root.dataset.url}?${query}`;
  };
  const fetched = async (place) => {
    const answer = await fetch(address(place), { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    const to = answer.headers.get("HX-Redirect");
    if (to) location.assign(to);
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
  };
  let top = 0;
  const setTop = (place) => {
    lines.scrollTop = place;
    top = lines.scrollTop;
  };
  const keepUp = () => { if (follow.checked) setTop(lines.scrollHeight); };
  const trim = () => {
    const shown = lines.getElementsByClassName("log-line");
    if (shown.length <= MOST_LINES) return;
    [...shown].slice(0, shown.length - MOST_LINES * 0.75).forEach((line) => line.remove());
    earlier.hidden = true;
    first = null;
    if (!lines.querySelector(".log-dropped")) {
      const note = document.createElement("span");
      note.className = "log-mark log-dropped";
      note.textContent = words.dropped;
      earlier.after(note);
    }
  };
  const show = (got) => {
    $("log-empty")?.remove();
    got.pieces.forEach((piece) => writer.write(piece));
    last = got.last;
    over = got.over && !got.more;
    told.textContent = over ? told.dataset.over : "";
    lines.classList.toggle("over", over);
    if (!lines.querySelector(".log-line, .log-mark")) {
      const empty = document.createElement("span");
      empty.id = "log-empty";
      empty.className = "note";
      empty.textContent = over ? words.silent : words.empty;
      lines.append(empty);
    }
    trim();
    if (got.pieces.length) keepUp();
  };
  const ask = (place, then) => (asked = request(place, then));
  // Whoever looks for lines waits for those that are on their way.
  const idle = async () => { while (busy) await asked; };
  const request = async (place, then) => {
    const mine = turn;
    busy = true;
    try {
      const got = await fetched(place);
      if (mine === turn) then(got);
      return mine === turn && got.more && place.before === undefined;
    } catch {
      if (mine === turn) told.textContent = told.dataset.lost;
      return false;
    } finally {
      if (mine === turn) busy = false;
    }
  };
  const poll = async () => {
    if (busy) return;
    if (last === undefined) return begin();
    while (await ask({ after: last }, show));
  };
  const begin = () => {
    turn += 1;
    [...lines.childNodes].forEach((node) => { if (node !== earlier) node.remove(); });
    writer = new Writer(lines);
    first = last = undefined;
    return ask({}, (got) => {
      first = got.first;
      earlier.hidden = !got.earlier;
      show(got);
    });
  };
  const prepend = (got) => {
    const before = document.createDocumentFragment();
    const own = new Writer(before);
    got.pieces.forEach((piece) => own.write(piece));
    // The next mark would repeat this one.
    const next = earlier.nextElementSibling;
    const height = lines.scrollHeight;
    if (next?.classList.contains("log-mark") && got.pieces.at(-1)?.attempt === Number(next.textContent.match(/\d+/)?.[0])) next.remove();
    earlier.after(before);
    setTop(lines.scrollTop + lines.scrollHeight - height);
    first = got.first;
    earlier.hidden = !got.earlier;
  };
  earlier.addEventListener("click", () => {
    if (!busy && first) more();
  });
  // Searching: earlier lines are loaded until something is found.
  const more = () => {
    follow.checked = false;
    return ask({ before: first }, prepend);
  };
  // Tells whether there were earlier lines, and are now; not if the server did not answer.
  const reached = async () => {
    const from = first;
    if (!from || earlier.hidden) return false;
    await more();
    await idle();
    return first !== from;
  };
  const matches = (wanted) => [...lines.getElementsByClassName("log-line")].filter((line) => wanted.test(line.textContent));
  const mark = (line) => {
    lines.querySelector(".log-found")?.classList.remove("log-found");
    if (!line) return;
    follow.checked = false;
    line.classList.add("log-found");
    line.scrollIntoView({ block: "center" });
    top = lines.scrollTop;
  };
  const sought = { text: "", at: 0 };
  const search = async (step) => {
    const text = $("log-search").value.trim();
    if (!text) return mark(null);
    const wanted = new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    await idle();
    let found = matches(wanted);
    while (found.length === 0 && await reached()) found = matches(wanted);
    sought.at = text === sought.text ? sought.at + step : found.length - 1;
    sought.text = text;
    sought.at = found.length ? (sought.at + found.length) % found.length : 0;
    mark(found[sought.at]);
    told.textContent = found.length ? told.dataset.found.replace("{number}", sought.at + 1).replace("{count}", found.length) : told.dataset.none;
  };
  $("log-search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); search(event.shiftKey ? 1 : -1); }
  });
  // The first in the whole log, so all of it is loaded.
  $("log-error").addEventListener("click", async () => {
    await idle();
    while (await reached());
    const found = matches(/\b(error|exception|traceback|fatal|panic|killed|out of memory)\b|\w(Error|Exception)\b/i);
    mark(found[0]);
    if (!found.length) told.textContent = told.dataset.none;
  });
  // What was wrong stands above the log too, and most often at its end.
  document.addEventListener("click", (event) => {
    const finder = event.target.closest("[data-log-find]");
    if (!finder) return;
    $("log-search").value = finder.dataset.logFind.slice(0, 200);
    sought.text = "";
    search(0);
    root.scrollIntoView({ block: "start" });
  });
  const chosen = () => {
    $("log-download").search = new URL(address({}), location).search;
    begin();
  };
  for (const name of ["attempt", "rank"]) $(`log-${name}`)?.addEventListener("change", chosen);
  $("log-wrap").addEventListener("change", (event) => {
    lines.classList.toggle("wrap", event.target.checked);
    keepUp();
  });
  follow.addEventListener("change", keepUp);
  new ResizeObserver(keepUp).observe(lines);
  // Scrolling up stops following; scrolling back to the end resumes it.
  lines.addEventListener("scroll", () => {
    const left = lines.scrollHeight - lines.clientHeight - lines.scrollTop;
    if (lines.scrollTop < top && left > 1) follow.checked = false;
    else if (lines.scrollTop > top && left < 40) follow.checked = true;
    top = lines.scrollTop;
  });
  // The page's clock; an ended job may be retried, and is polled less often.
  let ticks = 0;
  document.body.addEventListener("refresh", () => {
    ticks += 1;
    if (!over || ticks % 5 === 0) poll();
  });
  begin();
})();
