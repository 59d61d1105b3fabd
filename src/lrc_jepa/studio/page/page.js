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
