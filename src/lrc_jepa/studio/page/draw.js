// Pictures on canvases, and curves.

import { figure } from "./page.js";

const latest = new WeakMap(); // the newest picture asked for on each canvas: an older one may arrive later

// Draw a picture, or one frame of a sheet of frames side by side.
export async function paint(canvas, address, frame = 0, frames = 1) {
  const turn = {};
  latest.set(canvas, turn);
  const image = new Image();
  image.src = address;
  await image.decode();
  if (latest.get(canvas) !== turn) return;
  const width = image.naturalWidth / frames;
  if (canvas.width !== width || canvas.height !== image.naturalHeight) Object.assign(canvas, { width, height: image.naturalHeight });
  canvas.getContext("2d").drawImage(image, frame * width, 0, width, image.naturalHeight, 0, 0, width, image.naturalHeight);
  canvas.dataset.painted = String(Number(canvas.dataset.painted || 0) + 1);
}

export function svg(tag, attributes = {}, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text != null) element.textContent = text;
  return element;
}

export const points = path => (path || []).map(([x, y]) => `${x},${y}`).join(" ");

const PLAIN = { height: 96, logarithmic: false, low: null, high: null, marks: [], labels: false, upto: null };

// Lines over common axes: {values, xs, class, colour, dashed, dot}; gaps where a value is null. Without xs, values
// stand at 0, 1, 2, …; answers with the two scales, for whoever draws more.
export function curve(element, lines, options = {}) {
  const { height, logarithmic, low, high, marks, labels, upto } = { ...PLAIN, ...options };
  const width = element.clientWidth || 300, room = labels ? 46 : 0;
  const known = v => v != null && (!logarithmic || v > 0);
  const scale = v => logarithmic ? Math.log10(v) : v;
  const all = lines.flatMap(l => l.values.filter(known).map(scale));
  if (!all.length) { element.replaceChildren(); return null; }
  const at = (line, i) => line.xs ? line.xs[i] : i;
  const last = upto ?? Math.max(1, ...lines.map(l => l.values.length ? at(l, l.values.length - 1) : 0));
  const least = low ?? Math.min(...all), most = high ?? Math.max(...all), span = most - least || 1;
  const x = v => room + v * (width - room - 4) / last;
  const y = v => 4 + (height - 8) * (1 - (scale(v) - least) / span);
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const parts = [svg("line", { class: "axis", x1: room, x2: width, y1: height - 4, y2: height - 4 })];
  if (labels) {
    const shown = v => figure(logarithmic ? 10 ** v : v);
    parts.push(svg("text", { x: room - 6, y: 12, "text-anchor": "end" }, shown(most)), svg("text", { x: room - 6, y: height - 4, "text-anchor": "end" }, shown(least)));
  }
  for (const mark of marks) parts.push(svg("line", { class: "mark", x1: x(mark), x2: x(mark), y1: 0, y2: height }));
  for (const line of lines) {
    let path = "", pen = "M";
    line.values.forEach((v, i) => { if (!known(v)) { pen = "M"; return; } path += `${pen}${x(at(line, i)).toFixed(1)} ${y(v).toFixed(1)}`; pen = "L"; });
    const drawn = svg("path", { class: `line ${line.class || ""}${line.dashed ? " dashed" : ""}`, d: path });
    if (line.colour) drawn.style.stroke = line.colour;
    parts.push(drawn);
    const end = line.values.findLastIndex(known);
    if (!line.dot || end < 0) continue;
    const dot = svg("circle", { class: "now", cx: x(at(line, end)), cy: y(line.values[end]), r: 3.5 });
    if (line.colour) dot.style.fill = line.colour;
    parts.push(dot);
  }
  element.replaceChildren(...parts);
  return { x, y, last, room, width };
}
