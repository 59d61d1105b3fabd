// Imagination: drive the model with the world hidden, then lift the curtain.

import { $, make, figure, words, models, choice, Picker } from "./page.js";
import { paint, svg, points, curve } from "./draw.js";

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, -1], ArrowDown: [1, 1] };
const AHEAD = 8; // blocks of the recording that are followed at a time

export class Imagine {
  keys = { "← ↑ ↓ →": "steer, as long as it is held", Space: "stand still for a block", R: "follow the recording", C: "lift the curtain, or let it fall", N: "begin elsewhere" };

  constructor(section, ask, runs) {
    Object.assign(this, { section, ask, runs, held: new Set(), waits: false, lifted: false, steps: [], pair: 0 });
    $(".which", section).append(models(runs, 0, run => ask("open", { run })));
    for (const button of section.querySelectorAll("[data-do]")) button.addEventListener("click", () => this[`do_${button.dataset.do}`]());
    for (const button of section.querySelectorAll("[data-arrow]")) {
      const arrow = button.dataset.arrow, stop = () => this.release(arrow);
      button.addEventListener("pointerdown", event => { event.preventDefault(); this.press(arrow); });
      for (const what of ["pointerup", "pointerleave", "pointercancel"]) button.addEventListener(what, stop);
      button.addEventListener("click", event => { if (!event.detail) { this.press(arrow); this.release(arrow); } }); // by keyboard
    }
    addEventListener("keyup", event => this.release(event.key));
    addEventListener("blur", () => this.held.clear());
  }

  enter() { if (!this.facts) this.ask("open"); }
  leave() { this.held.clear(); }
  redraw() { this.draw(); }

  told_ready(facts) {
    this.facts = facts;
    this.pair = 0;
    this.picker = new Picker("start", facts, value => this.ask("begin", value));
    $(".pick", this.section).replaceChildren(this.picker.element);
    const name = dim => words(facts.names[dim % facts.names.length]), dims = facts.low.length;
    const pairs = Array.from({ length: Math.ceil(dims / 2) }, (_, i) => [2 * i, 2 * i + 1].filter(d => d < dims).map(d => `${d + 1}: ${name(d)}`).join(" and "));
    $(".pair", this.section).replaceChildren(...(pairs.length > 1 ? [choice("the arrows steer", pairs, pairs[0], name => { this.pair = pairs.indexOf(name); })] : []));
    $(".unknown", this.section).hidden = facts.simulated;
    $(".no-picture", this.section).hidden = facts.decodes;
    $(".dreamt", this.section).classList.toggle("blind", !facts.decodes);
  }

  told_begun(told) {
    this.steps = [{ ...told, dream: told.picture, real: null }];
    this.waits = false;
    this.picker.show(told);
    this.curtain(false);
    paint($(".real canvas", this.section), told.seen);
    if (!this.facts.decodes) paint($(".dreamt canvas", this.section), told.seen); // the last that it saw
    $("[data-do=replay]", this.section).disabled = !told.more;
    $(".blocks", this.section).replaceChildren();
    this.column(this.steps[0]);
    this.show();
  }

  told_step(told) {
    const step = { ...told, dream: told.picture, real: null };
    this.steps.push(step);
    this.column(step);
    this.show();
    this.waits = false;
    this.drive();
  }

  told_truth(told) {
    const step = this.steps[told.number];
    if (!step) return;
    step.real = told;
    if (told.picture) {
      const canvas = $(".real", step.element);
      canvas.classList.remove("blank");
      paint(canvas, told.picture);
    }
    $("span", step.element).textContent = told.picture ? this.off(told) : "unknown";
    this.show();
  }

  told_replayed({ more }) { this.waits = false; $("[data-do=replay]", this.section).disabled = !more; }
  told_curtain({ lifted }) { this.curtain(lifted); }

  // --- steering ---
  press(arrow) {
    if (!this.facts || this.held.has(arrow)) return;
    this.held.add(arrow);
    this.drive();
  }
  release(arrow) { this.held.delete(arrow); }
  drive() {
    if (this.waits || !this.held.size) return;
    const { low, high } = this.facts, action = low.map((l, i) => (l + high[i]) / 2);
    for (const arrow of this.held) {
      const [axis, way] = ARROWS[arrow] ?? [0, 0], dim = 2 * this.pair + axis;
      if (way && dim < action.length) action[dim] = way < 0 ? low[dim] : high[dim];
    }
    this.waits = true;
    this.ask("drive", { action });
  }
  do_still() { this.press("still"); this.release("still"); }
  do_replay() { this.waits = true; this.ask("replay", { blocks: AHEAD }); }
  do_curtain() { this.ask("curtain", { lifted: !this.lifted }); }
  do_again() { this.ask("begin", this.picker.value); }
  do_elsewhere() {
    const at = Math.floor(Math.random() * this.facts.heldout.length);
    this.ask("begin", { episode: this.facts.heldout[at], frame: Math.floor(Math.random() * Math.max(1, this.facts.lengths[at] - AHEAD * this.facts.block)) });
  }

  // --- what is shown ---
  curtain(lifted) {
    this.lifted = lifted;
    $(".curtain", this.section).classList.toggle("lifted", lifted);
    $("[data-do=curtain]", this.section).textContent = lifted ? "Let it fall" : "Lift the curtain";
    this.show();
  }

  off(told) {
    const shown = this.facts.shown;
    return shown && told.off[shown] != null ? `off by ${figure(told.off[shown])}` : `off by ${figure(told.gap)}`;
  }

  column(step) {
    const dream = make("canvas", { class: "dream", width: 1, height: 1 }), real = make("canvas", { class: "real blank", width: 1, height: 1 });
    step.element = make("div", { class: "block" }, ...(step.dream ? [dream] : []), real, make("span", {}, step.number ? `block ${step.number}` : "start"));
    if (step.dream) paint(dream, step.dream);
    $(".blocks", this.section).append(step.element);
    $(".blocks", this.section).scrollLeft = 1e6;
  }

  show() {
    const now = this.steps.at(-1);
    if (!now) return;
    if (now.dream) paint($(".dreamt canvas", this.section), now.dream);
    const path = this.steps.map(s => Object.values(s.points)[0]).filter(Boolean);
    const real = this.lifted ? this.steps.map(s => Object.values(s.real?.points ?? {})[0]).filter(Boolean) : [];
    for (const stage of this.section.querySelectorAll(".theatre svg")) {
      $(".path", stage).setAttribute("points", points(path));
      $(".trail", stage).setAttribute("points", points(real));
      $(".here", stage).replaceChildren(...(path.length ? [svg("circle", { cx: path.at(-1)[0], cy: path.at(-1)[1], r: 0.014 })] : []));
    }
    const shown = this.lifted && now.real?.picture;
    if (shown) paint($(".theatre .real canvas", this.section), shown);
    const blocks = now.number === 1 ? "1 block" : `${now.number} blocks`;
    $(".progress", this.section).textContent = now.number ? `${blocks} ahead, ${now.number * this.facts.block} actions` : "nothing imagined yet";
    this.draw();
  }

  draw() {
    const known = this.lifted ? this.steps.filter(s => s.real?.picture) : [];
    $(".drift", this.section).classList.toggle("empty", known.length < 2);
    if (known.length < 2) return;
    const xs = known.map(s => s.number), shown = this.facts.shown, last = known.at(-1).real;
    const plot = (name, lines) => curve($(`[data-plot=${name}]`, this.section), lines.map(l => ({ xs, ...l })), { labels: true, low: 0, height: 110 });
    plot("gap", [{ values: known.map(s => s.real.still), class: "faint" }, { values: known.map(s => s.real.gap), dot: true }]);
    const say = (name, ...parts) => $(`[data-say=${name}]`, this.section).replaceChildren(...parts);
    say("gap", "in the latent ", make("b", {}, figure(last.gap)), `, had nothing moved ${figure(last.still)}`);
    const measured = shown && last.off[shown] != null;
    $(".off", this.section).hidden = !measured;
    if (measured) {
      plot("off", [{ values: known.map(() => this.facts.errors[shown]), class: "faint" }, { values: known.map(s => s.real.off[shown]), dot: true }]);
      say("off", `${words(shown)} off by `, make("b", {}, figure(last.off[shown])), `, of which reading it errs by ${figure(this.facts.errors[shown])}`);
    }
    $(".psnr", this.section).hidden = last.psnr == null;
    if (last.psnr != null) {
      plot("psnr", [{ values: known.map(s => s.real.psnr), dot: true }]);
      say("psnr", "likeness of the picture ", make("b", {}, `${figure(last.psnr)} dB`));
    }
  }

  key(event) {
    if (!this.facts || event.target.matches("input[type=range]")) return false;
    const key = event.key.toLowerCase(), button = event.target.matches("button");
    if (event.key in ARROWS) { this.press(event.key); return true; }
    if (key === " " && !button) { this.do_still(); return true; }
    if (key === "r") { $("[data-do=replay]", this.section).click(); return true; }
    if (key === "c") { this.do_curtain(); return true; }
    if (key === "n") { this.do_elsewhere(); return true; }
    return false;
  }
}
