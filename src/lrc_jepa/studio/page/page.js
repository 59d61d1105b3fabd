// Small helpers for building the page.

export const $ = (selector, within = document) => within.querySelector(selector);

// An element with attributes and children; text is text, never markup.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const copy = id => document.getElementById(id).content.firstElementChild.cloneNode(true);

// A slider or a choice with its name and its value beside it.
export function slider(name, { min, max, step = 1, value, show = v => v }, changed) {
  const told = make("output", {}, String(show(value)));
  const input = make("input", { type: "range", min, max, step, value, "aria-label": name });
  input.addEventListener("input", () => { told.textContent = show(Number(input.value)); changed(Number(input.value), false); });
  input.addEventListener("change", () => changed(Number(input.value), true));
  return make("label", { class: "field" }, name, told, input);
}

export function choice(name, options, value, changed) {
  const select = make("select", { "aria-label": name }, ...options.map(o => make("option", { value: o, selected: o === value }, o)));
  select.addEventListener("change", () => changed(select.value));
  return make("label", { class: "field" }, name, select);
}

export const figure = value => value == null ? "–" : Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);

export const vector = values => values.map(figure).join(", ");
export const words = name => name.replaceAll("_", " ");

// A row of buttons of which one is down.
export function segments(name, options, value, changed) {
  const buttons = Object.entries(options).map(([key, text]) => make("button", { type: "button", "data-value": key, "aria-pressed": String(key === value) }, text));
  const press = key => { for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.value === key)); };
  for (const button of buttons) button.addEventListener("click", () => { press(button.dataset.value); changed(button.dataset.value); });
  const element = make("div", { class: "segments", role: "group", "aria-label": name }, ...buttons);
  element.press = press;
  return element;
}

// Which of several models: nothing where there is one.
export const models = (runs, value, changed) => runs.length < 2 ? "" : segments("model", Object.fromEntries(runs.map((r, i) => [i, r.label])), String(value), key => changed(Number(key)));

// A recorded frame: an episode, to be gone through one by one, and a frame of it.
export class Picker {
  constructor(name, { heldout, lengths }, changed) {
    Object.assign(this, { heldout, lengths, changed, at: 0 });
    this.told = make("output", {});
    this.number = make("output", { class: "at" });
    this.slider = make("input", { type: "range", min: 0, value: 0, "aria-label": `${name}: frame` });
    this.slider.addEventListener("input", () => this.tell());
    const step = by => make("button", { class: "plain", "aria-label": `${name}: ${by < 0 ? "previous" : "next"} episode`, onclick: () => this.go(by) }, by < 0 ? "‹" : "›");
    this.element = make("div", { class: "picker" }, step(-1), this.told, step(1), this.slider, this.number);
  }
  get value() { return { episode: this.heldout[this.at], frame: Number(this.slider.value) }; }
  show({ episode, frame }) {
    this.at = Math.max(0, this.heldout.indexOf(episode));
    this.slider.max = this.lengths[this.at] - 1;
    this.slider.value = frame;
    this.say();
  }
  say() {
    this.told.textContent = `episode ${this.value.episode}`;
    this.number.textContent = this.value.frame;
  }
  go(by) {
    this.at = (this.at + by + this.heldout.length) % this.heldout.length;
    this.slider.max = this.lengths[this.at] - 1;
    this.tell();
  }
  tell() { this.say(); this.changed(this.value); }
}
