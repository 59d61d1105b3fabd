// Goal and plan: drag the goal, see the models think, let them act.

import { $, make, slider, choice, Picker } from "./page.js";
import { Stage } from "./stage.js";

const NUDGE = 0.02; // of the picture, for each press of an arrow key
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Plan {
  keys = { Space: "act once", Enter: "act to the end, or stop", N: "another scene", G: "a goal from a recording", "← ↑ ↓ →": "move the goal", "[ ]": "iterations of the search" };

  constructor(section, ask, runs, say) {
    Object.assign(this, { section, ask, runs, say, stages: [], acting: false, goal: { points: {} } });
    for (const button of section.querySelectorAll("[data-do]")) {
      const does = event => this[`do_${button.dataset.do}`](event);
      button.addEventListener(button.type === "file" ? "change" : "click", does);
    }
  }

  enter() { if (!this.facts) this.ask("open"); }
  leave() { if (this.acting) this.ask("stop"); }
  redraw() { for (const stage of this.stages) stage.draw_cost(); }

  // --- what the studio tells ---
  told_ready(facts) {
    this.facts = facts;
    this.section.classList.toggle("alone", facts.agents.length === 1);
    this.stages = facts.agents.map(index => new Stage(this.runs[index], this));
    $(".stages", this.section).replaceChildren(...this.stages.map(s => s.element));
    for (const old of this.section.querySelectorAll(".strip")) old.remove();
    $(".films", this.section).append(...this.stages.map(s => s.strip));
    this.fields(facts);
    this.picker = new Picker("goal", facts, value => this.ask("goal_frame", value));
    this.picker.show({ episode: facts.heldout[0], frame: 0 });
    $(".recorded .pick", this.section).replaceChildren(this.picker.element);
    const [first] = facts.handles;
    for (const words of this.section.querySelectorAll(".drag")) words.hidden = !first;
    $(".choose", this.section).hidden = Boolean(first);
    if (first) $(".hand-word", this.section).textContent = first;
  }
  told_scene(told) { this.stages[told.agent].show_scene(told); }
  told_goal(told) { this.goal = told; for (const stage of this.stages) stage.show_goal(told); }
  told_thought(told) { this.stages[told.agent].show_thought(told); }
  told_step(told) { this.stages[told.agent].show_step(told); }
  told_acting({ acting }) {
    this.acting = acting;
    const button = $("[data-do=end]", this.section);
    button.textContent = acting ? "Stop" : "Act to the end";
    $("[data-do=once]", this.section).disabled = acting;
  }

  // --- what a hand does ---
  drag(kind, handle, x, y) {
    const inside = v => Math.min(1, Math.max(0, v));
    this.ask(kind === "goal" ? "goal" : "disturb", { handle, x: inside(x), y: inside(y) });
  }
  do_once() { this.ask("act", { steps: this.block }); }
  do_end() { this.ask(this.acting ? "stop" : "act"); }
  do_scene() {
    const { episode, frame } = this.anywhere(this.facts.ahead);
    this.ask("begin", { episode, frame });
  }
  do_recorded() {
    const card = $(".recorded", this.section), button = $("[data-do=recorded]", this.section);
    card.hidden = !card.hidden;
    button.setAttribute("aria-expanded", String(!card.hidden));
    if (!card.hidden) { this.picker.show(this.anywhere(0)); this.picker.tell(); }
  }
  async do_picture(event) {
    const [file] = event.target.files;
    if (!file) return;
    event.target.value = "";
    try {
      const image = await createImageBitmap(file);
      const small = Math.min(1, 512 / Math.max(image.width, image.height));
      const canvas = make("canvas", { width: Math.round(image.width * small), height: Math.round(image.height * small) });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      this.ask("goal_picture", { picture: canvas.toDataURL("image/png") });
    } catch { this.say("this file is not a picture that the browser can read"); }
  }

  // A held-out frame with so many frames after it, where an episode has as many.
  anywhere(after) {
    const at = Math.floor(Math.random() * this.facts.heldout.length);
    return { episode: this.facts.heldout[at], frame: Math.floor(Math.random() * Math.max(1, this.facts.lengths[at] - after)) };
  }

  get block() { return this.runs[this.facts.agents[0]].block; }

  key(event) {
    if (!this.facts || event.target.matches("input[type=range]") && event.key.startsWith("Arrow")) return false;
    if (event.key === " " && !event.target.matches("button, summary, .button")) { if (!this.acting) this.do_once(); return true; }
    if (event.key === "Enter" && !event.target.matches("button, summary, .button")) { this.do_end(); return true; }
    if (event.key.toLowerCase() === "n") { this.do_scene(); return true; }
    if (event.key.toLowerCase() === "g") { this.do_recorded(); return true; }
    if (event.key === "[" || event.key === "]") { for (const s of this.stages) s.turn(event.key === "]" ? 1 : -1); return true; }
    const arrow = ARROWS[event.key], [handle] = this.facts.handles;
    const at = this.goal.points[handle];
    if (!arrow || !at) return false;
    this.goal.points[handle] = [at[0] + NUDGE * arrow[0], at[1] + NUDGE * arrow[1]]; // keys may come faster than answers
    this.drag("goal", handle, ...this.goal.points[handle]);
    return true;
  }

  // --- how to search ---
  fields({ planners, settings }) {
    const chosen = { ...settings };
    const change = name => (value, done = true) => { chosen[name] = value; if (done) this.ask("settings", chosen); };
    $(".fields", this.section).replaceChildren(
      choice("planner", planners, settings.planner, change("planner")),
      slider("candidates", { min: 10, max: Math.max(500, settings.samples), step: 10, value: settings.samples }, change("samples")),
      slider("iterations", { min: 1, max: Math.max(30, settings.iterations), value: settings.iterations }, change("iterations")),
      slider("horizon, in blocks of actions", { min: 1, max: Math.max(10, settings.horizon), value: settings.horizon }, change("horizon")),
      slider("blocks before it plans again", { min: 1, max: Math.max(10, settings.execute), value: settings.execute }, change("execute")),
    );
  }
}
