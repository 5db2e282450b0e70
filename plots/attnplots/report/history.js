"use strict";
// Draws each chart when it comes into view, and tells what is at a commit.
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const LEFT = 58, RIGHT = 10, TOP = 16, BOTTOM = 20;

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A value with a unit for people, with `digits` significant digits.
function valueText(value, unit, digits = 4) {
  const scaled = (sizes) => {
    const [name, size] = sizes.find(([, limit]) => value >= limit) ?? sizes[sizes.length - 1];
    return `${Number((value / size).toPrecision(digits))} ${name}`;
  };
  if (unit === "s") return scaled([["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]);
  if (unit === "bytes") return scaled([["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]]);
  return `${Number(value.toPrecision(digits))}${unit ? " " + unit : ""}`;
}

// At most five round numbers from low to high.
function ticks(low, high) {
  const raw = (high - low) / 4, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= raw);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found;
}

function scales(chart, width, height) {
  const numbers = chart.values.concat(chart.low, chart.high).filter((x) => x !== null);
  let low = Math.min(...numbers), high = Math.max(...numbers);
  const room = (high - low) * 0.08 || Math.abs(high) * 0.05;
  low -= room;
  high += room;
  const first = chart.commits[0], last = chart.commits[chart.commits.length - 1];
  const span = Math.max(1, last - first);
  return {
    low, high,
    x: (commit) => LEFT + ((width - LEFT - RIGHT) * (last === first ? 0.5 : (commit - first) / span)),
    y: (value) => TOP + ((height - TOP - BOTTOM) * (high - value)) / (high - low),
  };
}

function draw(figure) {
  const place = figure.querySelector(".place");
  const chart = data.charts[Number(figure.id.slice("chart-".length))];
  const width = Math.max(220, place.clientWidth), height = Math.max(120, place.clientHeight);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figure.dataset.name });
  const { x, y, low, high } = scales(chart, width, height);
  for (const at of ticks(low, high)) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(at), y2: y(at) }));
    svg.append(element("text", { x: LEFT - 4, y: y(at) + 4, "text-anchor": "end" }, valueText(at, chart.unit, 3)));
  }
  const date = (commit) => data.commits[commit][1].slice(0, 10);
  svg.append(element("text", { x: LEFT, y: height - 6 }, date(chart.commits[0])));
  if (chart.commits.length > 1)
    svg.append(element("text", { x: width - RIGHT, y: height - 6, "text-anchor": "end" }, date(chart.commits[chart.commits.length - 1])));
  const points = chart.commits.map((commit, i) => [x(commit), y(chart.values[i])]);
  const band = chart.commits.map((commit, i) => [commit, chart.low[i], chart.high[i]]).filter(([, a, b]) => a !== null && b !== null);
  if (band.length > 1)
    svg.append(element("polygon", {
      class: "band",
      points: band.map(([c, a]) => `${x(c).toFixed(1)},${y(a).toFixed(1)}`)
        .concat(band.reverse().map(([c, , b]) => `${x(c).toFixed(1)},${y(b).toFixed(1)}`)).join(" "),
    }));
  svg.append(element("polyline", { class: "values", points: points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ") }));
  if (points.length <= 60) for (const [a, b] of points) svg.append(element("circle", { class: "dot", cx: a, cy: b, r: 2 }));
  // The level between changes: the median of the values.
  const ends = [...chart.changes.map(([commit]) => chart.commits.indexOf(commit)), points.length];
  ends.forEach((end, i) => {
    const begin = i === 0 ? 0 : ends[i - 1], sorted = chart.values.slice(begin, end).sort((a, b) => a - b);
    const half = sorted.length >> 1, middle = sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
    svg.append(element("line", { class: "level", x1: points[begin][0], x2: points[end - 1][0], y1: y(middle), y2: y(middle) }));
  });
  for (const [commit, text, worse] of chart.changes) {
    const tone = worse ? "worse" : "better", at = x(commit);
    svg.append(element("line", { class: `step ${tone}`, x1: at, x2: at, y1: TOP, y2: height - BOTTOM }));
    svg.append(element("text", { class: tone, x: at, y: 11, "text-anchor": at > width - 60 ? "end" : at < LEFT + 30 ? "start" : "middle" }, text));
  }
  const mark = element("circle", { class: "mark", r: 4, visibility: "hidden" });
  svg.append(mark);
  place.replaceChildren(svg);
  figure.told = { chart, points, mark, width };
}

// Tells what is at the i-th point of the figure.
function tell(figure, i) {
  const { chart, points, mark, width } = figure.told;
  const at = Math.max(0, Math.min(points.length - 1, i));
  figure.at = at;
  const [id, when, subject] = data.commits[chart.commits[at]];
  const interval = chart.low[at] === null || chart.high[at] === null ? "" :
    ` (${valueText(chart.low[at], chart.unit)} … ${valueText(chart.high[at], chart.unit)})`;
  const change = chart.changes.find(([commit]) => commit === chart.commits[at]);
  tip.textContent = `${valueText(chart.values[at], chart.unit)}${interval}${change ? `, ${change[1]}` : ""}. ${id} of ${when}${subject ? `: ${subject}` : ""}`;
  tip.hidden = false;
  mark.setAttribute("cx", points[at][0]);
  mark.setAttribute("cy", points[at][1]);
  mark.setAttribute("visibility", "visible");
  const box = figure.querySelector("svg").getBoundingClientRect();
  const left = box.left + (points[at][0] / width) * box.width;
  tip.style.left = `${Math.max(4, Math.min(window.innerWidth - tip.offsetWidth - 4, left + 12))}px`;
  tip.style.top = `${Math.max(4, Math.min(window.innerHeight - tip.offsetHeight - 4, box.bottom + 4))}px`;
}

function hide(figure) {
  tip.hidden = true;
  if (figure.told) figure.told.mark.setAttribute("visibility", "hidden");
}

const figures = [...document.querySelectorAll(".history figure")];
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting && !target.told) draw(target);
}, { rootMargin: "300px" });
for (const figure of figures) {
  watcher.observe(figure);
  figure.addEventListener("pointermove", (event) => {
    if (!figure.told) return;
    const box = figure.querySelector("svg").getBoundingClientRect(), { points, width } = figure.told;
    const wanted = ((event.clientX - box.left) / box.width) * width;
    let nearest = 0;
    points.forEach(([x], i) => { if (Math.abs(x - wanted) < Math.abs(points[nearest][0] - wanted)) nearest = i; });
    tell(figure, nearest);
  });
  figure.addEventListener("pointerleave", () => hide(figure));
  figure.addEventListener("blur", () => hide(figure));
  figure.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || !figure.told) return;
    event.preventDefault();
    const from = figure.at ?? figure.told.points.length;
    tell(figure, Math.max(0, Math.min(figure.told.points.length - 1, from + steps[event.key])));
  });
}
const filter = document.getElementById("filter");
filter.addEventListener("input", () => {
  const wanted = filter.value.toLowerCase();
  let shown = 0;
  for (const figure of figures) {
    figure.hidden = !figure.dataset.name.toLowerCase().includes(wanted);
    shown += figure.hidden ? 0 : 1;
  }
  document.getElementById("shown").textContent = wanted ? `${shown} of ${figures.length}` : "";
});
