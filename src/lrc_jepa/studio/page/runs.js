// Runs: curves that grow while a run trains, runs side by side, the films and figures of the report.

import { $, make, figure, words } from "./page.js";
import { curve, svg } from "./draw.js";

const FIRST = ["total", "prediction", "reconstruction", "reconstruction_moving", "sigreg", "sigreg_within", "context", "effective_rank", "error_true_actions", "error_shuffled_actions"];
const APART = /^(still_|gradient_[a-z_]+\.|episode_chance)/;
const LINEAR = /^(r2_|effective_rank|episode_|distance_rank)/;
const SAID = { total: "objective", gradient_norm: "norm of the gradient", effective_rank: "effective rank of z", episode_z: "episode told from z", episode_u: "episode told from u" };

export class Runs {
  keys = { A: "all runs, or the first alone", F: "films and figures" };

  constructor(section, ask, runs, say) {
    Object.assign(this, { section, ask, say, list: [], chosen: [], curves: {}, views: [] });
    $("[data-do=report]", section).addEventListener("click", () => this.report());
  }

  enter() { this.ask("open"); }
  leave() { this.ask("leave"); }
  redraw() { this.draw(); }

  told_list({ runs }) { this.list = runs; this.chips(); }
  told_chosen({ names }) { this.chosen = names; this.chips(); this.draw(); }
  told_curves(told) { this.curves[told.name] = told; this.chips(); this.draw(); }

  // A second run of a system has the same colour, and dashes.
  style(name) {
    const run = this.list.find(r => r.name === name) ?? { colour: "currentColor", system: "" };
    const alike = this.chosen.filter(n => this.list.find(r => r.name === n)?.system === run.system);
    return { colour: run.colour, dashed: alike.indexOf(name) % 2 === 1 };
  }

  chips() {
    $(".chips", this.section).replaceChildren(...this.list.map(run => {
      const dot = make("i", { class: run.live ? "dot live" : "dot" });
      dot.style.color = run.colour;
      const step = this.curves[run.name]?.step, on = this.chosen.includes(run.name);
      const told = [run.recipe || run.system, run.seed != null ? `seed ${run.seed}` : "", step != null ? `step ${step}${run.steps ? ` of ${run.steps}` : ""}` : "", run.live ? "training now" : ""].filter(Boolean).join(" · ");
      return make("button", { class: "chip", "aria-pressed": String(on), onclick: () => this.toggle(run.name) }, dot, make("b", {}, run.name), make("small", {}, told));
    }));
    const warnings = this.chosen.flatMap(name => (this.curves[name]?.warnings ?? []).map(text => `${name}: ${text}`));
    $(".warnings", this.section).replaceChildren(...warnings.map(text => make("li", { class: "warning" }, text)));
  }

  toggle(name) {
    const names = this.chosen.includes(name) ? this.chosen.filter(n => n !== name) : [...this.chosen, name];
    this.ask("choose", { names });
  }

  // --- curves ---
  draw() {
    for (const [kind, where] of [["train", ".plots"], ["health", ".plots.health"]]) {
      const names = this.names(kind), holder = $(where, this.section);
      if (holder.dataset.wanted !== names.join()) {
        holder.dataset.wanted = names.join();
        holder.replaceChildren(...names.map(name => this.plot(kind, name)));
      }
      for (const drawing of holder.querySelectorAll("svg")) this.line(drawing, kind, drawing.dataset.name);
    }
    $(".nothing", this.section).hidden = this.names("train").length > 0;
    $(".health-head", this.section).hidden = !this.names("health").length;
  }

  // What is drawn, the most telling first.
  names(kind) {
    const all = this.chosen.flatMap(name => Object.keys(this.curves[name]?.[kind].series ?? {}));
    const rank = name => FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length;
    return [...new Set(all)].filter(name => !APART.test(name)).sort((a, b) => rank(a) - rank(b));
  }

  plot(kind, name) {
    const drawing = svg("svg", { class: "curve tall", "data-name": name });
    const said = make("figcaption", { class: "number" });
    const card = make("figure", { class: "card plot" }, make("h3", {}, SAID[name] ?? words(name).replace(".", ": ")), drawing, said);
    drawing.addEventListener("pointermove", event => this.point(drawing, kind, name, event));
    drawing.addEventListener("pointerleave", () => this.line(drawing, kind, name));
    return card;
  }

  line(drawing, kind, name, at = null) {
    const lines = this.chosen.filter(n => this.curves[n]?.[kind].series[name]).map(n => ({ name: n, xs: this.curves[n][kind].steps, values: this.curves[n][kind].series[name], dot: at === null, ...this.style(n) }));
    const logarithmic = !LINEAR.test(name) && lines.every(l => l.values.every(v => v == null || v > 0));
    const upto = Math.max(1, ...lines.map(l => l.xs.at(-1) ?? 0));
    const made = curve(drawing, lines, { height: 130, labels: true, logarithmic, upto, marks: at === null ? [] : [at] });
    const value = l => { const i = at === null ? l.values.length - 1 : l.xs.findLastIndex(x => x <= at); return l.values[Math.max(0, i)]; };
    drawing.nextElementSibling.replaceChildren(...lines.map(l => { const dot = make("i", { class: "dot" }); dot.style.color = l.colour; return make("span", {}, dot, lines.length > 1 ? `${l.name} ` : "", figure(value(l))); }), make("span", {}, `step ${Math.round(at ?? upto)}`));
    return made;
  }

  point(drawing, kind, name, event) {
    const made = this.line(drawing, kind, name);
    if (!made) return;
    const box = drawing.getBoundingClientRect(), across = (event.clientX - box.left) / box.width * made.width;
    this.line(drawing, kind, name, Math.min(made.last, Math.max(0, (across - made.room) / (made.width - made.room - 4) * made.last)));
  }

  // --- the report ---
  report() {
    const button = $("[data-do=report]", this.section);
    button.disabled = true;
    button.textContent = "Drawing them…";
    this.ask("report");
  }
  told_report() { $(".report", this.section).replaceChildren(); }
  told_reported() {
    const button = $("[data-do=report]", this.section);
    button.disabled = false;
    button.textContent = "Draw them again";
    const report = $(".report", this.section);
    if (!report.childElementCount) report.append(make("p", { class: "note" }, "Nothing has been measured yet: lrc lab RUN does all experiments, lrc plan RUN leaves films."));
  }
  told_view(view) {
    const films = view.films.filter(f => f.film).map(f => this.picture(f.film, `pair ${f.pair}: ${f.success ? `reached at step ${f.first_success_step}` : "not reached"}`));
    const strips = [...view.films.filter(f => f.still).slice(0, 3).map(f => this.picture(f.still, `pair ${f.pair}: what happened above, what was imagined below, the goal last`, "wide")), ...view.rollouts.map(r => this.picture(r, "recorded, rebuilt from z and u, imagined from the first frame on", "wide"))];
    const figures = view.figures.map(f => this.picture(f.picture, "", f.wide ? "drawn wide" : "drawn"));
    if (films.length || strips.length || figures.length) $(".report", this.section).append(make("article", { class: "card" }, make("h2", {}, `Films of ${view.label}`), make("div", { class: "films-grid" }, ...films), make("div", { class: "pictures" }, ...strips, ...figures)));
    for (const section of view.sections) this.told_section({ ...section, title: `${section.title}, ${view.label}` });
  }
  told_section(section) {
    const tables = section.tables.map(t => make("div", { class: "scroll" }, make("table", {}, make("tr", {}, ...t.columns.map(c => make("th", {}, c))), ...t.rows.map(row => make("tr", {}, ...row.map(cell => make("td", {}, cell)))))));
    const figures = section.figures.map(f => this.picture(f.picture, "", f.wide ? "drawn wide" : "drawn"));
    const pictures = section.pictures.map(p => this.picture(p.picture, p.caption, "wide"));
    $(".report", this.section).append(make("article", { class: "card" }, make("h2", {}, section.title), ...section.remarks.map(r => make("p", {}, r)), make("div", { class: "pictures" }, ...figures), ...tables, make("div", { class: "pictures" }, ...pictures), make("p", { class: "note" }, section.note)));
  }
  picture(address, caption, kind = "") {
    return make("figure", { class: kind }, make("img", { src: address, alt: caption || "figure", loading: "lazy" }), ...(caption ? [make("figcaption", {}, caption)] : []));
  }

  key(event) {
    const key = event.key.toLowerCase();
    if (key === "a" && this.list.length) { this.ask("choose", { names: this.chosen.length === this.list.length ? [this.list[0].name] : this.list.map(r => r.name) }); return true; }
    if (key === "f") { $("[data-do=report]", this.section).click(); return true; }
    return false;
  }
}
