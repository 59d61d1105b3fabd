// One model in its world: the picture with the search drawn over it, what it sees, its cost, and its films.

import { $, make, copy, figure } from "./page.js";
import { paint, svg, points, curve } from "./draw.js";

const TURN = 120; // milliseconds that each iteration of a search is shown
const ELITE = 0.2; // share of the candidates that are drawn strongly

export class Stage {
  constructor(run, plan) {
    Object.assign(this, { run, plan, handles: {}, trail: [], blocks: [], thought: null, at: 0 });
    this.element = copy("stage");
    this.world = $(".world", this.element);
    const dot = make("i", { class: "dot" });
    dot.style.color = run.colour;
    $(".who", this.element).append(dot, run.label);
    this.slider = $(".turn input", this.element);
    this.slider.addEventListener("input", () => { clearTimeout(this.playing); this.show_turn(Number(this.slider.value)); });
    this.strip = copy("strip");
    $("h3", this.strip).textContent = plan.facts.agents.length > 1 ? run.label : "";
    for (const name of plan.facts.handles) {
      this.add_handle("hand", name);
      this.add_handle("goal", name);
    }
    this.world.addEventListener("pointerdown", event => {
      const [name] = plan.facts.handles;
      if (name && !event.target.closest(".handle")) this.hold(event, "goal", name);
    });
  }

  // --- handles ---
  add_handle(kind, name) {
    const several = this.plan.facts.handles.length > 1;
    const title = kind === "goal" ? `Where the ${name} should be` : `Where the ${name} is: drag to disturb`;
    const handle = make("button", { class: `handle ${kind}`, "data-name": several ? `goal: ${name}` : "goal", "data-handle": name, title, "aria-label": title, tabindex: -1, hidden: true });
    handle.addEventListener("pointerdown", event => this.hold(event, kind, name));
    this.handles[`${kind} ${name}`] = handle;
    this.world.append(handle);
  }

  put(kind, name, point) {
    const handle = this.handles[`${kind} ${name}`];
    if (!handle || !point || handle.classList.contains("held") && this.held_at) point = this.held_at ?? point;
    if (!handle || !point) return;
    handle.hidden = false;
    handle.style.left = `${100 * point[0]}%`;
    handle.style.top = `${100 * point[1]}%`;
    handle.classList.toggle("low", point[1] > 0.85);
  }

  hold(event, kind, name) {
    event.preventDefault();
    event.stopPropagation();
    const handle = this.handles[`${kind} ${name}`];
    this.world.setPointerCapture(event.pointerId);
    handle.classList.add("held");
    const box = this.world.getBoundingClientRect();
    const move = at => {
      this.held_at = [(at.clientX - box.left) / box.width, (at.clientY - box.top) / box.height].map(v => Math.min(1, Math.max(0, v)));
      this.put(kind, name, this.held_at);
      this.plan.drag(kind, name, ...this.held_at);
    };
    const drop = () => {
      handle.classList.remove("held");
      this.held_at = null;
      for (const [what, does] of Object.entries({ pointermove: move, pointerup: drop, pointercancel: drop })) this.world.removeEventListener(what, does);
      this.play();
    };
    for (const [what, does] of Object.entries({ pointermove: move, pointerup: drop, pointercancel: drop })) this.world.addEventListener(what, does);
    move(event);
  }

  // --- the world ---
  show_scene(told) {
    this.forget_rest();
    if (!told.disturbed) { this.blocks = []; $(".blocks", this.strip).replaceChildren(); }
    this.trail = [];
    this.look(told);
  }

  show_step(told) {
    this.look(told);
    if (!told.block) return;
    const block = this.blocks.find(b => b.real === null);
    if (!block) return;
    block.real = told.block.seen;
    const canvas = $(".real", block.element);
    canvas.classList.remove("blank");
    paint(canvas, told.block.seen);
    $("span", block.element).textContent = `off by ${figure(told.block.gap)}`;
    paint($(".sees", this.element), told.block.seen);
    const strip = $(".blocks", this.strip), right = block.element.offsetLeft + block.element.offsetWidth - strip.offsetLeft;
    if (right > strip.scrollLeft + strip.clientWidth) strip.scrollLeft = right - strip.clientWidth; // the page itself stays where it is
  }

  look(told) {
    paint($("canvas", this.world), told.now);
    for (const [name, point] of Object.entries(told.points)) this.put("hand", name, point);
    const [first] = Object.values(told.points);
    if (first) this.trail.push(first);
    $(".trail", this.world).setAttribute("points", points(this.trail));
    const steps = told.steps === 1 ? "1 step" : `${told.steps} steps`;
    const state = $(".state", this.element);
    state.classList.toggle("reached", told.reached);
    state.textContent = told.reached ? `reached · ${steps}` : told.distance == null ? steps : `${figure(told.distance)} ${told.unit} away · ${steps}`;
    for (const handle of this.world.querySelectorAll(".handle.goal")) handle.classList.toggle("reached", told.reached);
  }

  show_goal(told) {
    paint($("canvas.goal", this.element), told.view);
    for (const name of this.plan.facts.handles) {
      if (told.points[name]) this.put("goal", name, told.points[name]);
      else this.handles[`goal ${name}`].hidden = true;
    }
  }

  // --- the search ---
  show_thought(told) {
    this.thought = told;
    paint($(".sees", this.element), told.sees);
    $(".path", this.world).setAttribute("points", points(told.path));
    this.slider.max = told.turns.length - 1;
    this.forget_rest();
    this.add_blocks(told);
    if (this.plan.acting || this.held_at) this.show_turn(told.turns.length - 1);
    else this.play();
  }

  // Show how the candidates narrow, from the first iteration to the last.
  play() {
    clearTimeout(this.playing);
    if (!this.thought) return;
    const last = this.thought.turns.length - 1;
    const next = turn => {
      this.show_turn(turn);
      if (turn < last) this.playing = setTimeout(next, TURN, turn + 1);
    };
    next(matchMedia("(prefers-reduced-motion: reduce)").matches ? last : 0);
  }

  turn(by) {
    clearTimeout(this.playing);
    if (this.thought) this.show_turn(Math.min(this.thought.turns.length - 1, Math.max(0, this.at + by)));
  }

  show_turn(turn) {
    this.at = turn;
    this.slider.value = turn;
    const { paths } = this.thought.turns[turn] ?? { paths: null };
    const last = turn === this.thought.turns.length - 1;
    const lines = (paths ?? []).map((path, rank) => svg("polyline", { points: points(path), class: rank < ELITE * paths.length ? "elite" : "" }));
    $(".fan", this.world).replaceChildren(...lines.reverse());
    $(".path", this.world).style.opacity = last ? 1 : 0;
    $(".turn span", this.element).textContent = `iteration ${this.number(turn)} of ${this.thought.cost.length}`;
    this.draw_cost();
  }

  // Of a long search not all iterations are drawn: the number of one that is.
  number(turn) {
    const shown = this.thought.turns.length, all = this.thought.cost.length;
    return shown < 2 ? all : 1 + Math.round(turn * (all - 1) / (shown - 1));
  }

  draw_cost() {
    if (!this.thought) return;
    const whole = this.thought.cost, upto = whole.slice(0, this.number(this.at));
    const seen = whole.filter(v => v != null);
    const values = [...upto, ...Array(whole.length - upto.length).fill(null)];
    curve($(".curve", this.element), [{ values, dot: true }], { low: Math.min(...seen), high: Math.max(...seen) });
    $(".cost figcaption", this.element).replaceChildren("cost ", make("b", {}, figure(upto.at(-1))), ` · planned in ${Math.round(this.thought.ms)} ms`);
  }

  // --- imagined and real ---
  forget_rest() {
    for (const block of this.blocks.filter(b => b.real === null)) block.element.remove();
    this.blocks = this.blocks.filter(b => b.real !== null);
  }

  add_blocks({ film, blocks }) {
    for (let index = 0; index < blocks; index += 1) {
      const dream = make("canvas", { class: "dream", width: 1, height: 1 }), real = make("canvas", { class: "real blank", width: 1, height: 1 });
      const element = make("div", { class: index ? "block" : "block first" }, ...(film ? [dream] : []), real, make("span", {}, `block ${index + 1}`));
      if (film) paint(dream, film.sheet, index, film.frames);
      this.blocks.push({ element, real: null });
      $(".blocks", this.strip).append(element);
    }
  }
}
