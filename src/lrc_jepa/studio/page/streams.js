// Streams: two frames, z from one and u from the other; walks; what each stream knows and where it looks.

import { $, make, figure, vector, words, segments, models, slider, Picker } from "./page.js";
import { paint } from "./draw.js";

const SIDES = ["a", "b"];

export class Streams {
  keys = { "← →": "walk", "↑ ↓": "another direction", Z: "walk along z or u", S: "swap the two frames", L: "look with another eye" };

  constructor(section, ask, runs) {
    Object.assign(this, { section, ask, runs, frames: {}, knowledge: {}, looks: "", walking: { side: "a", stream: "z", component: 0 }, at: 5 });
    $(".which", section).append(models(runs, 0, run => ask("open", { run })));
  }

  enter() { if (!this.facts) this.ask("open"); }

  told_ready(facts) {
    this.facts = facts;
    this.knowledge = {};
    this.looks = "";
    this.pickers = Object.fromEntries(SIDES.map(side => [side, new Picker(`frame ${side}`, facts, value => this.ask("look", { side, ...value }))]));
    for (const side of SIDES) $(`[data-side=${side}] .pick`, this.section).replaceChildren(this.pickers[side].element);
    $(".mix", this.section).hidden = !facts.decodes;
    $(".walk", this.section).hidden = !facts.decodes;
    $(".blind", this.section).hidden = facts.decodes;
  }

  told_walks({ shares }) {
    this.shares = shares;
    $(".walk", this.section).hidden = !shares.z;
    if (shares.z) this.controls();
  }

  told_frame(told) {
    this.frames[told.side] = told;
    this.pickers[told.side].show(told);
    paint($(`[data-side=${told.side}] canvas`, this.section), told.picture);
    this.eyes(Object.keys(told.attention));
    this.look();
  }

  told_knows(told) { this.knowledge[told.side] = told; this.knows(); }

  told_mixed({ film }) {
    this.section.querySelectorAll(".mix canvas").forEach((canvas, index) => paint(canvas, film.sheet, index, film.frames));
  }

  told_walk(told) {
    this.walked = told;
    Object.assign(this.walking, { side: told.side, stream: told.stream, component: told.component });
    $(".walk .strip", this.section).replaceChildren(...told.along.map((_, index) => {
      const canvas = make("canvas", { width: 1, height: 1 });
      paint(canvas, told.film.sheet, index, told.film.frames);
      return make("button", { class: "frame", "aria-label": `step ${index + 1}`, onclick: () => this.step(index) }, canvas);
    }));
    this.stream.press(told.stream);
    this.side.press(told.side);
    this.direction.value = told.component + 1;
    this.direction.max = this.shares[told.stream].length;
    $(".walk .share", this.section).textContent = `direction ${told.component + 1} of ${told.stream}: ${Math.round(100 * told.share)}% of its variance`;
    this.step(this.at);
  }

  // --- what each stream knows ---
  knows() {
    const sides = SIDES.filter(side => this.knowledge[side]), { readings } = this.knowledge[sides[0]];
    const streams = Object.keys(readings).filter(s => Object.keys(readings[s]).length);
    $(".knowing", this.section).hidden = !streams.length;
    if (!streams.length) return;
    const head = make("tr", {}, make("th", {}, "quantity"), make("th", {}, "true"), ...streams.map(s => make("th", { class: `${s}-word` }, `${s} says`)));
    const said = ({ value, error, r2 }) => make("td", { class: r2 > 0.5 ? "knows" : "", title: `R² ${figure(r2)} on held-out frames` }, vector(value[0]), make("small", {}, ` ± ${figure(error)}`));
    const rows = Object.keys(readings[streams[0]]).flatMap(name => sides.map(side => make("tr", {}, make("td", {}, make("b", {}, side.toUpperCase()), ` ${words(name)}`),
      make("td", {}, vector(this.knowledge[side].truth[name] ?? [])), ...streams.map(s => said(this.knowledge[side].readings[s][name])))));
    $(".known", this.section).replaceChildren(head, ...rows);
  }

  // --- where it looks ---
  eyes(names) {
    const holder = $(".eyes", this.section);
    if (holder.dataset.names === names.join()) return;
    holder.dataset.names = names.join();
    const title = name => name[0] === "z" ? `z, layer ${name.slice(2)}` : `u, query ${name.slice(2)}`;
    this.eye = segments("where it looks", Object.fromEntries([["", "off"], ...names.map(n => [n, title(n)])]), this.looks, name => { this.looks = name; this.look(); });
    holder.replaceChildren(...(names.length ? [make("span", { class: "note" }, "where it looks"), this.eye] : []));
  }

  // Where a stream does not look, the picture is dimmed.
  look() {
    for (const side of SIDES) {
      const map = this.frames[side]?.attention[this.looks], shade = $(`[data-side=${side}] .shade`, this.section);
      shade.hidden = !map;
      if (!map) continue;
      const size = map.length, image = new ImageData(size, size);
      map.flat().forEach((v, i) => image.data.set([8, 12, 24, 225 * (1 - v)], 4 * i));
      Object.assign(shade, { width: size, height: size });
      shade.getContext("2d").putImageData(image, 0, 0);
      shade.dataset.painted = this.looks;
    }
  }

  // --- walks ---
  controls() {
    const go = change => this.ask("walk", { ...this.walking, ...change });
    const streams = Object.fromEntries(Object.keys(this.shares).map(s => [s, s]));
    this.stream = segments("stream", streams, this.walking.stream, stream => go({ stream, component: 0 }));
    this.side = segments("from", { a: "from A", b: "from B" }, this.walking.side, side => go({ side }));
    const field = slider("direction", { min: 1, max: this.shares.z.length, value: 1 }, component => go({ component: component - 1 }));
    this.direction = $("input", field);
    $("output", field).remove();
    $(".walk .how", this.section).replaceChildren(this.stream, this.side, field);
    this.where = $(".walk .where", this.section);
    this.where.oninput = () => this.step(Number(this.where.value));
  }

  step(index) {
    this.at = index;
    const { film, along, readings, stream } = this.walked;
    this.where.max = along.length - 1;
    this.where.value = index;
    paint($(".walk .big", this.section), film.sheet, index, film.frames);
    [...$(".walk .strip", this.section).children].forEach((b, i) => b.setAttribute("aria-pressed", String(i === index)));
    const said = Object.entries(readings[stream] ?? {}).map(([name, { value }]) => `${words(name)} ${vector(value[index])}`);
    $(".walk .said", this.section).textContent = `${along[index] > 0 ? "+" : ""}${figure(along[index])} standard deviations` + (said.length ? ` · ${stream} says ${said.join("; ")}` : "");
  }

  key(event) {
    if (!this.facts || event.target.matches("input[type=range]")) return false;
    const key = event.key.toLowerCase(), along = this.walked?.along.length ?? 0;
    if (key === "s") { this.ask("swap"); return true; }
    if (key === "l" && this.eye) { const b = [...this.eye.children]; b[(b.findIndex(x => x.dataset.value === this.looks) + 1) % b.length].click(); return true; }
    if (!along) return false;
    if (key === "z") { const streams = Object.keys(this.shares); this.ask("walk", { ...this.walking, component: 0, stream: streams[(streams.indexOf(this.walking.stream) + 1) % streams.length] }); return true; }
    if (key === "arrowleft" || key === "arrowright") { this.step(Math.min(along - 1, Math.max(0, this.at + (key === "arrowright" ? 1 : -1)))); return true; }
    if (key === "arrowup" || key === "arrowdown") {
      const count = this.shares[this.walking.stream].length, by = key === "arrowdown" ? 1 : -1;
      this.ask("walk", { ...this.walking, component: (this.walking.component + by + count) % count });
      return true;
    }
    return false;
  }
}
