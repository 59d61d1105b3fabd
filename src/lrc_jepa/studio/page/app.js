// The frame of the page: tabs, theme, keys, and who is told what.

import { $, make, copy } from "./page.js";
import { Talk } from "./talk.js";
import { Plan } from "./plan.js";
import { Streams } from "./streams.js";
import { Imagine } from "./imagine.js";
import { Episodes } from "./episodes.js";
import { Runs } from "./runs.js";

const PARTS = { plan: ["Plan", Plan], streams: ["Streams", Streams], imagine: ["Imagine", Imagine], episodes: ["Episodes", Episodes], runs: ["Runs", Runs] };
const parts = {};
let shown = "";
let runs = [];

// --- theme: what the system wants, until the switch is used ---
const dark = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
function theme() {
  const now = chosen ?? (dark.matches ? "dark" : "light");
  document.documentElement.dataset.theme = now;
  $("#theme").textContent = now === "dark" ? "☀" : "☾";
  for (const part of Object.values(parts)) part.redraw?.();
}
dark.addEventListener("change", theme);
$("#theme").addEventListener("click", () => { chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; theme(); });

// --- what the studio tells ---
const talk = new Talk(told, lost => {
  $(".lost").hidden = !lost;
  $(".lost").textContent = "The studio has stopped, or is out of reach. Trying again…";
});

function told(answer) {
  if (answer.tell === "hello") return hello(answer);
  if (answer.tell === "refused") return say(answer.sentence);
  const [part, word] = answer.tell.split(".");
  parts[part]?.[`told_${word}`]?.(answer);
}

function hello(answer) {
  runs = answer.runs;
  document.title = `${answer.title} · lrc studio`;
  $(".runs").replaceChildren(...runs.map(run => {
    const dot = make("i", { class: "dot" });
    dot.style.color = run.colour;
    return make("span", { title: `${run.system}, ${run.world}, ${run.size}, step ${run.step}` }, dot, `${run.label} on ${run.world}`);
  }));
  $("main").replaceChildren();
  $(".tabs").replaceChildren();
  for (const name of answer.parts) {
    const [title, Kind] = PARTS[name];
    const section = copy(`part-${name}`);
    section.hidden = true;
    section.setAttribute("aria-label", title);
    $("main").append(section);
    $(".tabs").append(make("button", { role: "tab", "data-part": name, "aria-selected": "false", onclick: () => show(name) }, title));
    parts[name] = new Kind(section, (word, fields) => talk.ask(`${name}.${word}`, fields), runs, say);
  }
  const wanted = location.hash.slice(1);
  show(answer.parts.includes(wanted) ? wanted : answer.parts[0]);
}

function show(name) {
  if (shown && shown !== name) parts[shown].leave?.();
  shown = name;
  history.replaceState(null, "", `#${name}`);
  for (const section of document.querySelectorAll(".part")) section.hidden = section.id !== name;
  for (const tab of document.querySelectorAll(".tabs button")) tab.setAttribute("aria-selected", String(tab.dataset.part === name));
  parts[name].enter();
}

let quiet;
function say(sentence) {
  const toast = $(".toast");
  toast.textContent = sentence[0].toUpperCase() + sentence.slice(1) + ".";
  toast.hidden = false;
  clearTimeout(quiet);
  quiet = setTimeout(() => { toast.hidden = true; }, 6000);
}

// --- keys ---
const GENERAL = { "1 … 5": "go to a part", T: "light or dark", "?": "these keys" };
$("#help").addEventListener("click", help);
function help() {
  const keys = { ...(parts[shown]?.keys ?? {}), ...GENERAL };
  $(".keys dl").replaceChildren(...Object.entries(keys).flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)]));
  $(".keys").showModal();
}
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $(".keys").open || event.target.matches("input:not([type=range]), select, textarea")) return;
  const tabs = document.querySelectorAll(".tabs button");
  if (/^[1-9]$/.test(event.key) && tabs[event.key - 1]) tabs[event.key - 1].click();
  else if (event.key === "?") help();
  else if (event.key.toLowerCase() === "t") $("#theme").click();
  else if (!parts[shown]?.key?.(event)) return;
  event.preventDefault();
});
addEventListener("resize", () => parts[shown]?.redraw?.());
theme();
