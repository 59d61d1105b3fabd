// Pictures on canvases, and curves.

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

// Lines over a common axis: {values, class, name}; gaps where a value is null.
export function curve(element, lines, { height = 96, logarithmic = false, low, high, marks = [] } = {}) {
  const width = element.clientWidth || 300;
  const scale = v => logarithmic ? Math.log10(Math.max(v, 1e-12)) : v;
  const all = lines.flatMap(l => l.values.filter(v => v != null).map(scale));
  if (!all.length) { element.replaceChildren(); return; }
  const least = low ?? Math.min(...all), most = high ?? Math.max(...all), span = most - least || 1;
  const count = Math.max(...lines.map(l => l.values.length));
  const x = i => count > 1 ? i * width / (count - 1) : width / 2;
  const y = v => 4 + (height - 8) * (1 - (scale(v) - least) / span);
  element.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const parts = [svg("line", { class: "axis", x1: 0, x2: width, y1: height - 4, y2: height - 4 })];
  for (const at of marks) parts.push(svg("line", { class: "mark", x1: x(at), x2: x(at), y1: 0, y2: height }));
  for (const line of lines) {
    let path = "", pen = "M";
    line.values.forEach((v, i) => { if (v == null) { pen = "M"; return; } path += `${pen}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; pen = "L"; });
    const drawn = svg("path", { class: `line ${line.class || ""}`, d: path });
    if (line.colour) drawn.style.stroke = line.colour;
    parts.push(drawn);
    const last = line.values.findLastIndex(v => v != null);
    if (line.dot) parts.push(svg("circle", { class: "now", cx: x(last), cy: y(line.values[last]), r: 3.5 }));
  }
  element.replaceChildren(...parts);
  return { x, y };
}
