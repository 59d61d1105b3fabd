// Episodes: look through a dataset, scrub, see surprise and findings, mark what is to be dropped.

import { $, make, figure, words, segments } from "./page.js";
import { paint, curve } from "./draw.js";

const PAGE = 24;
const WORST = { error: 2, warning: 1, note: 0 };

export class Episodes {
  keys = { "← →": "frame by frame", "↑ ↓": "another episode", Space: "play, or stop", X: "drop it, or keep it", J: "where the model is most surprised" };

  constructor(section, ask, runs, say) {
    Object.assign(this, { section, ask, runs, say, first: 0, at: { episode: 0, frame: 0 }, which: "all", findings: [], playing: null });
    $("[data-do=play]", section).addEventListener("click", () => this.play());
    $("[data-do=drop]", section).addEventListener("click", () => this.drop());
    $("[data-do=worst]", section).addEventListener("click", () => this.worst());
    $("[data-do=copy]", section).addEventListener("click", () => navigator.clipboard.writeText($(".command", section).textContent).then(() => this.say("copied"), () => this.say("the browser does not let the page copy: select the text")));
    $("[data-do=validate]", section).addEventListener("click", () => ask("validate"));
    this.slider = $(".scrub", section);
    this.slider.addEventListener("input", () => this.seek(Number(this.slider.value)));
    for (const plot of section.querySelectorAll(".timeline .plot")) {
      const to = event => { const box = plot.getBoundingClientRect(); this.seek(Math.round((event.clientX - box.left) / box.width * (this.shown.length - 1))); };
      plot.addEventListener("pointerdown", event => { plot.setPointerCapture(event.pointerId); to(event); });
      plot.addEventListener("pointermove", event => { if (event.buttons) to(event); });
    }
  }

  enter() { if (!this.facts) this.ask("open"); }
  leave() { this.stop(); }
  redraw() { this.draw(); }

  // --- the list ---
  told_ready(facts) {
    this.facts = facts;
    this.findings = [];
    const frames = facts.lengths.reduce((a, b) => a + b, 0);
    $(".about", this.section).textContent = `${facts.path} · ${facts.world} · ${facts.lengths.length} episodes, ${frames.toLocaleString("en")} frames of ${facts.size} pixels`;
    $(".which", this.section).replaceChildren(...(facts.sets.length > 1 ? [segments("dataset", Object.fromEntries(facts.sets.map((n, i) => [i, n])), String(facts.number), key => this.ask("open", { number: Number(key) }))] : []));
    $("[data-do=validate]", this.section).hidden = !facts.large;
    this.told_marked(facts);
    this.filter = segments("which episodes", { all: "all", found: "with findings", marked: "to drop" }, this.which, which => { this.which = which; this.first = 0; this.list(); });
    $(".filter", this.section).replaceChildren(this.filter);
    this.first = 0;
    this.list();
    this.show(facts.heldout[0] ?? 0);
  }

  told_marked({ marked, file, command }) {
    this.marked = new Set(marked);
    const count = marked.length;
    $(".dropping", this.section).hidden = !count;
    $(".count", this.section).textContent = `${count === 1 ? "1 episode is" : `${count} episodes are`} to be dropped: the list is in ${file}.`;
    $(".command", this.section).textContent = command;
    this.badges();
  }

  told_findings({ findings, done, total }) {
    const busy = $(".looking", this.section);
    busy.hidden = findings !== null;
    busy.textContent = `Looking it over: ${Math.round(100 * done / Math.max(1, total))}%`;
    if (findings === null) return;
    $("[data-do=validate]", this.section).hidden = true;
    this.findings = findings;
    this.worst_of = new Map();
    for (const f of findings) for (const e of f.episodes) if (!(WORST[this.worst_of.get(e)] >= WORST[f.severity])) this.worst_of.set(e, f.severity);
    $(".found", this.section).replaceChildren(...(findings.length ? findings.map(f => make("li", { class: f.severity }, f.sentence)) : [make("li", { class: "note" }, "lrc data validate finds nothing wrong")]));
    if (this.which === "found") this.list(); else this.badges();
    this.faults();
  }

  chosen() {
    const all = this.facts.lengths.map((_, i) => i);
    if (this.which === "marked") return all.filter(e => this.marked.has(e));
    return this.which === "found" ? all.filter(e => this.worst_of?.has(e)) : all;
  }

  list() {
    const chosen = this.chosen();
    this.first = Math.max(0, Math.min(this.first, Math.floor((chosen.length - 1) / PAGE) * PAGE));
    this.listed = chosen.slice(this.first, this.first + PAGE);
    const tiles = this.listed.map(e => make("button", { class: "tile", "data-episode": e, onclick: () => this.show(e) }, make("canvas", { width: 1, height: 1 }), make("span", {}, String(e))));
    $(".tiles", this.section).replaceChildren(...(tiles.length ? tiles : [make("p", { class: "note" }, "none")]));
    const step = (by, text, name) => make("button", { class: "plain", disabled: this.first + by < 0 || this.first + by >= chosen.length, "aria-label": name, onclick: () => { this.first += by; this.list(); } }, text);
    $(".pager", this.section).replaceChildren(step(-PAGE, "‹", "earlier episodes"), make("span", {}, chosen.length ? `${this.first + 1} to ${this.first + this.listed.length} of ${chosen.length}` : "0"), step(PAGE, "›", "later episodes"));
    if (this.listed.length) this.ask("thumbs", { episodes: this.listed });
    this.badges();
  }

  told_thumbs({ episodes, film }) {
    episodes.forEach((e, index) => {
      const tile = $(`.tile[data-episode="${e}"] canvas`, this.section);
      if (tile) paint(tile, film.sheet, index, film.frames);
    });
  }

  badges() {
    const held = new Set(this.facts.heldout);
    for (const tile of this.section.querySelectorAll(".tile")) {
      const e = Number(tile.dataset.episode), fault = this.worst_of?.get(e);
      tile.classList.toggle("marked", this.marked.has(e));
      tile.classList.toggle("heldout", held.has(e));
      tile.classList.toggle("now", e === this.at.episode);
      tile.dataset.fault = fault ?? "";
      tile.title = [held.has(e) ? "never trained on" : "", fault ? `${fault} found` : "", this.marked.has(e) ? "to be dropped" : ""].filter(Boolean).join(", ");
    }
    const marked = this.marked.has(this.at.episode), button = $("[data-do=drop]", this.section);
    button.textContent = marked ? "Keep it" : "Drop this episode";
    button.setAttribute("aria-pressed", String(marked));
  }

  // --- one episode ---
  show(episode, frame = 0) {
    this.stop();
    this.at = { episode, frame };
    this.ask("show", this.at);
    this.badges();
  }

  told_episode(told) {
    this.shown = told;
    this.surprise = null;
    this.slider.max = told.length - 1;
    const held = this.facts.heldout.includes(told.episode) ? ", never trained on" : "";
    $(".title", this.section).textContent = `Episode ${told.episode}`;
    $(".length", this.section).textContent = `${told.length} frames${this.facts.rate ? `, ${figure(told.length / this.facts.rate)} s` : ""}${held}`;
    $(".film", this.section).replaceChildren(...told.along.map((frame, index) => {
      const canvas = make("canvas", { width: 1, height: 1 });
      paint(canvas, told.strip.sheet, index, told.strip.frames);
      return make("button", { class: "frame", "aria-label": `frame ${frame}`, onclick: () => this.seek(frame) }, canvas);
    }));
    $(".surprised", this.section).hidden = !this.facts.model;
    this.faults();
    this.draw();
  }

  told_surprise(told) {
    if (told.episode !== this.shown?.episode) return;
    this.surprise = told;
    const times = told.worst == null ? null : told.values[Math.round(told.worst * (told.values.length - 1) / Math.max(1, told.frames - 1))] / told.usual;
    $(".surprise-said", this.section).textContent = times == null ? "" : `most at frame ${told.worst}: ${figure(times)} times what is usual`;
    this.draw();
  }

  told_frame(told) {
    if (told.episode !== this.at.episode) return;
    this.at.frame = told.frame;
    paint($(".screen", this.section), told.picture);
    if (document.activeElement !== this.slider) this.slider.value = told.frame;
    $(".where", this.section).textContent = `frame ${told.frame}`;
    this.cursor();
    if (this.playing) this.playing = setTimeout(() => this.next(), 1000 / Math.min(30, Math.max(5, this.facts.rate ?? 15)));
  }

  faults() {
    if (!this.shown) return;
    const own = this.findings.filter(f => f.episodes.includes(this.shown.episode));
    $(".own", this.section).replaceChildren(...own.map(f => make("li", { class: f.severity }, f.sentence)));
  }

  seek(frame) {
    if (!this.shown) return;
    const last = this.shown.length - 1;
    this.at.frame = Math.min(last, Math.max(0, frame));
    this.slider.value = this.at.frame;
    this.ask("frame", this.at);
  }

  next() { if (this.at.frame >= this.shown.length - 1) this.stop(); else this.seek(this.at.frame + 1); }
  play() {
    if (this.playing) { this.stop(); return; }
    if (this.at.frame >= this.shown.length - 1) this.at.frame = 0;
    this.playing = true;
    $("[data-do=play]", this.section).textContent = "Stop";
    this.next();
  }
  stop() {
    clearTimeout(this.playing);
    this.playing = null;
    $("[data-do=play]", this.section).textContent = "Play";
  }
  drop() { this.ask("drop", { episode: this.at.episode, drop: !this.marked.has(this.at.episode) }); }
  worst() { if (this.surprise?.worst != null) this.seek(this.surprise.worst); }

  // --- along the episode ---
  draw() {
    if (!this.shown) return;
    const lines = this.shown.actions.map((values, index) => ({ values, class: `a${index % 6}` }));
    const element = $(".actions", this.section);
    curve(element, lines, { height: 90, upto: Math.max(1, Math.max(...lines.map(l => l.values.length)) - 1) });
    $(".legend", this.section).replaceChildren(...lines.slice(0, 12).map((l, i) => make("span", { class: l.class }, words(this.facts.names[i] ?? `action ${i + 1}`))));
    this.strip();
    this.cursor();
  }

  // Surprise as a strip: the darker, the further the prediction was from what came.
  strip() {
    const canvas = $(".heat", this.section), values = this.surprise?.values ?? [];
    Object.assign(canvas, { width: Math.max(1, values.length), height: 1 });
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--warn").trim();
    const context = canvas.getContext("2d");
    context.fillStyle = ink;
    values.forEach((v, i) => {
      context.globalAlpha = v == null ? 0 : Math.min(1, Math.max(0, Math.log2(1 + v / this.surprise.usual) / 3));
      context.fillRect(i, 0, 1, 1);
    });
    canvas.dataset.painted = String(values.length);
  }

  cursor() {
    const share = this.shown ? this.at.frame / Math.max(1, this.shown.length - 1) : 0;
    for (const line of this.section.querySelectorAll(".cursor")) line.style.left = `${100 * share}%`;
  }

  key(event) {
    if (!this.facts || !this.shown) return false;
    const key = event.key.toLowerCase(), button = event.target.matches("button");
    if (event.target.matches("input[type=range]") && key.startsWith("arrow")) return false;
    if (key === "arrowleft" || key === "arrowright") { this.stop(); this.seek(this.at.frame + (key === "arrowright" ? 1 : -1)); return true; }
    if (key === "arrowup" || key === "arrowdown") {
      const chosen = this.chosen(), at = chosen.indexOf(this.at.episode) + (key === "arrowdown" ? 1 : -1);
      if (chosen[at] != null) {
        if (!this.listed.includes(chosen[at])) { this.first = Math.floor(at / PAGE) * PAGE; this.list(); }
        this.show(chosen[at]);
      }
      return true;
    }
    if (key === " " && !button) { this.play(); return true; }
    if (key === "x") { this.drop(); return true; }
    if (key === "j") { this.worst(); return true; }
    return false;
  }
}
