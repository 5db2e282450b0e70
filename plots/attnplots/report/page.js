"use strict";
// The program of the page: it fills the charts and the tables with the data that page.py put into the element #data.

const DATA = JSON.parse(document.getElementById("data").textContent);
// How many rows of a table are made at once.
const ROWS = 200;
// At most so many panels are drawn, since each takes the browser some hundredths of a second.
const MAX_PANELS = 16;

// ---------------------------------------------------------------- elements and numbers

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function digits(value) {
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(2);
  const text = value.toPrecision(3);
  if (text.includes("e")) return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : text;
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(text));
}

const FORMS = {
  time: (v) => v >= 1000 ? `${digits(v / 1000)} s` : v >= 1 ? `${digits(v)} ms` : `${digits(v * 1000)} µs`,
  bytes: (v) => v >= 2 ** 30 ? `${digits(v / 2 ** 30)} GiB` : v >= 2 ** 20 ? `${digits(v / 2 ** 20)} MiB`
    : v >= 1024 ? `${digits(v / 1024)} KiB` : `${Math.round(v)} B`,
  share: (v) => `${digits(100 * v)} %`,
  length: (v) => v >= 1024 && v % 1024 === 0 ? `${v / 1024}k` : String(v),
  number: (v) => digits(v),
};
// The labels of axes are made by Vega, whose expressions know `datum.value`.
const LABELS = {
  time: "datum.value >= 1000 ? format(datum.value / 1000, '~r') + ' s' : datum.value >= 1 ? format(datum.value, '~r') + ' ms'"
    + " : format(datum.value * 1000, '.3~r') + ' µs'",
  bytes: "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB' : datum.value >= 1048576 ?"
    + " format(datum.value / 1048576, '~r') + ' MiB' : datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB'"
    + " : format(datum.value, '~r') + ' B'",
  share: "format(100 * datum.value, '.3~r') + ' %'",
  length: "datum.value >= 1024 && datum.value % 1024 === 0 ? format(datum.value / 1024, '~r') + 'k' : format(datum.value, '~r')",
  number: "format(datum.value, '.3~r')",
};
const FORM_OF_UNIT = {ms: "time", B: "bytes"};

function shown(column, value) {
  if (value === null || value === undefined) return "";
  if (column.name === "_interval") return `± ${FORMS.share(value)}`;
  if (typeof value === "number") {
    const form = FORM_OF_UNIT[column.unit];
    if (form) return FORMS[form](value);
    return Number.isInteger(value) ? value.toLocaleString("en") : digits(value);
  }
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

const HEADS = {_folder: "folder", _interval: "± interval", time_median_ms: "time of a call", peak_extra_bytes: "memory", query_len: "N",
               max_row_error: "rounding error", quality_row_error_median: "distance from exact", ratio_median: "ratio to baseline",
               _rate: "GFLOP/s", _doubts: "doubts", _name: "method"};
// What a column is called; its lines may have a name of their own for it.
const head = (name, lines) => (lines && lines.column(name) && lines.column(name).head) || HEADS[name] || name.replace(/^_/, "").replaceAll("_", " ");

// ---------------------------------------------------------------- lines

// The lines of a table or a chart: values by row and column.
class Lines {
  constructor({columns, usual, rows}) {
    Object.assign(this, {columns, usual, rows});
    this.index = new Map(columns.map((column, k) => [column.name, k]));
  }
  get(row, name) {
    const k = this.index.get(name);
    return k === undefined ? null : row[k];
  }
  column(name) { return this.columns[this.index.get(name)]; }
}

const LINES = Object.fromEntries(Object.entries(DATA.lines).map(([key, found]) => [key, new Lines(found)]));

// ---------------------------------------------------------------- charts

const isDark = matchMedia("(prefers-color-scheme: dark)");
const themeOf = () => {
  const css = getComputedStyle(document.documentElement);
  return Object.fromEntries(["page", "ink", "quiet", "line", "one", "other"].map((n) => [n, css.getPropertyValue(`--${n}`).trim()]));
};

class Chart {
  constructor(place) {
    this.config = DATA.charts[place.dataset.chart];
    this.lines = LINES[this.config.lines];
    this.controls = place.querySelector(".controls");
    this.legend = place.querySelector(".legend");
    this.panels = place.querySelector(".panels");
    this.state = {
      x: 0, y: 0, logarithmic: true, divided: true, ratioTo: "", byRun: this.config.part === "_folder" && this.config.parts.length === 2,
      series: new Set(this.config.series.map((look) => look.name)),
      parts: new Set(this.config.parts),
      facets: this.config.facets.map((facet) => new Set(facet.values.filter((v) => v.on).map((v) => JSON.stringify(v.value)))),
    };
    this.controls.addEventListener("submit", (event) => event.preventDefault());
    // The choices are folded where they would push the charts off the first screen: on a small one, and below what changed.
    place.querySelector(".choices").open = !this.isOfTwoRuns && matchMedia("(min-width: 50rem)").matches;
    this.makeControls();
    this.makeLegend();
    this.draw();
    isDark.addEventListener("change", () => { this.makeLegend(); this.draw(); });
  }

  // Whether the chart shows two runs, of which each may have a colour.
  get isOfTwoRuns() { return this.config.part === "_folder" && this.config.parts.length === 2; }

  get x() { return this.config.x[this.state.x]; }
  get y() { return this.config.y[this.state.y]; }

  select(label, options, chosen, change) {
    const list = element("select", {"aria-label": label}, ...options.map((text, k) => element("option", {value: k, selected: k === chosen}, text)));
    list.addEventListener("change", () => { change(Number(list.value)); this.draw(); });
    return element("label", {}, element("span", {}, label), list);
  }

  box(label, checked, change) {
    const input = element("input", {type: "checkbox", checked});
    input.addEventListener("change", () => { change(input.checked); this.draw(); });
    return element("label", {className: "box"}, input, label);
  }

  makeControls() {
    const {config, state} = this;
    const made = [];
    if (config.y.length > 1) made.push(this.select("Vertical axis", config.y.map((q) => q.title), state.y, (k) => { state.y = k; }));
    if (config.x.length > 1) made.push(this.select("Horizontal axis", config.x.map((q) => q.title), state.x, (k) => { state.x = k; }));
    if (config.y.some((q) => q.has_ratio)) {
      const names = config.series.map((look) => look.name);
      made.push(this.select("Divided by", ["nothing", ...names], 0, (k) => { state.ratioTo = k ? names[k - 1] : ""; }));
    }
    if (this.isOfTwoRuns)
      made.push(this.select("Colours", ["one for each run", "one for each method"], 0, (k) => { state.byRun = k === 0; this.makeLegend(); }));
    made.push(this.box("logarithmic", true, (on) => { state.logarithmic = on; }));
    if (config.y.some((q) => q.divided)) made.push(this.box("per sequence", true, (on) => { state.divided = on; }));
    const choices = (title, values, chosen) => element("fieldset", {}, element("legend", {}, title),
      ...values.map(({value, text}) => this.box(text, chosen.has(value), (on) => { on ? chosen.add(value) : chosen.delete(value); })));
    config.facets.forEach((facet, k) => made.push(choices(facet.title,
      facet.values.map((v) => ({value: JSON.stringify(v.value), text: v.text})), state.facets[k])));
    if (config.part && config.parts.length > 1 && !this.isOfTwoRuns)
      made.push(choices(head(config.part), config.parts.map((p) => ({value: p, text: p})), state.parts));
    this.controls.replaceChildren(...made);
  }

  makeLegend() {
    const {config, state} = this;
    const theme = themeOf();
    const runs = this.isOfTwoRuns ? config.parts.map((part, k) => {
      const input = element("input", {type: "checkbox", checked: state.parts.has(part)});
      input.addEventListener("change", () => { input.checked ? state.parts.add(part) : state.parts.delete(part); this.draw(); });
      return element("label", {}, input, element("span", {className: state.byRun ? `run ${k ? "other" : "one"}` : ""}, part));
    }) : [];
    const boxes = config.series.map((look) => {
      const input = element("input", {type: "checkbox", checked: state.series.has(look.name)});
      input.addEventListener("change", () => {
        input.checked ? state.series.add(look.name) : state.series.delete(look.name);
        this.draw();
      });
      return element("label", {}, input, swatch(look, theme, state.byRun), this.nameOf(look.name));
    });
    const all = (text, on) => {
      const button = element("button", {type: "button"}, text);
      button.addEventListener("click", () => {
        state.series = new Set(on ? config.series.map((look) => look.name) : []);
        this.makeLegend();
        this.draw();
      });
      return button;
    };
    this.legend.replaceChildren(...runs, ...boxes, ...(boxes.length > 2 ? [all("all", true), all("none", false)] : []));
  }

  nameOf(series) {
    const row = this.lines.rows.find((r) => this.lines.get(r, "method") === series);
    return (row && this.lines.get(row, "_name")) || series;
  }

  // The rows that the facets, the methods and the folders choose, by the title of their panel.
  chosen() {
    const {config, state, lines} = this;
    const groups = new Map();
    for (const row of lines.rows) {
      if (!state.series.has(lines.get(row, "method"))) continue;
      if (config.part && !state.parts.has(String(lines.get(row, config.part)))) continue;
      if (config.facets.some((f, k) => !state.facets[k].has(JSON.stringify(lines.get(row, f.column))))) continue;
      const title = config.panel ? lines.get(row, config.panel) : "";
      if (!groups.has(title)) groups.set(title, []);
      groups.get(title).push(row);
    }
    return groups;
  }

  // The value of an axis in a row, and the ends of its interval.
  valueOf(quantity, row) {
    const by = quantity.divided && this.state.divided ? this.lines.get(row, quantity.divided) || 1 : 1;
    const get = (name) => {
      const value = name ? this.lines.get(row, name) : null;
      return typeof value === "number" ? value / by : null;
    };
    return [get(quantity.column), get(quantity.low), get(quantity.high)];
  }

  pointsOf(rows) {
    const {state, config, lines} = this;
    const ratio = this.y.has_ratio ? state.ratioTo : "";
    const keyOf = (row) => JSON.stringify([lines.get(row, "_panel"), lines.get(row, "_folder"), lines.get(row, "query_len"), lines.get(row, "batch")]);
    const bases = new Map();
    if (ratio) for (const row of lines.rows) if (lines.get(row, "method") === ratio) bases.set(keyOf(row), this.valueOf(this.y, row)[0]);
    const points = [], gaps = [];
    for (const row of rows) {
      const [x] = this.valueOf(this.x, row);
      let [y, low, high] = this.valueOf(this.y, row);
      const series = lines.get(row, "method");
      if (ratio) {
        const base = bases.get(keyOf(row));
        [y, low, high] = [y, low, high].map((v) => v === null || !base ? null : v / base);
      }
      const told = this.told(row, y);
      const usable = (v) => v !== null && (!state.logarithmic || v > 0);
      if (usable(x) && usable(y)) {
        const part = config.part ? String(lines.get(row, config.part)) : "";
        points.push({x, y, low: usable(low) ? low : y, high: usable(high) ? high : y, series, part, ...told});
      } else if (usable(x) && lines.get(row, "_missing")) {
        gaps.push({x, series, ...told, Missing: lines.get(row, "_missing")});
      }
    }
    return {points, gaps};
  }

  // The texts that appear over a point, by what they are called there.
  told(row, y) {
    const {config, lines} = this;
    const name = lines.get(row, "_name") || lines.get(row, "method");
    const told = {Method: name};
    if (y !== null) told[this.y.title.replace(/[.[\]\\"']/g, " ")] = FORMS[this.y.form](y);
    for (const column of config.told) {
      const value = lines.get(row, column);
      if (value !== null && value !== undefined) told[head(column, lines)] = shown(lines.column(column), value);
    }
    const seed = lines.get(row, "seed");
    if (!config.told.length && seed !== null) told.seed = String(seed);
    const [x] = this.valueOf(this.x, row);
    if (!config.told.includes(this.x.column) && x !== null) told[this.x.title.replace(/[.[\]\\"']/g, " ")] = FORMS[this.x.form](x);
    return told;
  }

  draw() {
    const groups = [...this.chosen()].map(([title, rows]) => ({title, ...this.pointsOf(rows)})).filter((g) => g.points.length || g.gaps.length);
    const drawn = groups.filter((group) => group.points.length).slice(0, MAX_PANELS);
    const all = drawn.flatMap((group) => group.points);
    const token = this.token = {};
    if (!all.length) {
      this.panels.replaceChildren(element("p", {}, "Nothing that is chosen has a value."));
      return;
    }
    // The rounding of exact methods would take most of the scale of errors.
    const {floor} = this.y;
    this.isCut = this.state.logarithmic && all.some((p) => p.y < floor) && all.some((p) => p.y >= floor);
    if (this.isCut) for (const point of all) for (const name of ["y", "low", "high"]) point[name] = Math.max(point[name], floor);
    const domain = {x: spanOf([...all, ...drawn.flatMap((g) => g.gaps)].map((p) => p.x), this.isLogX(all)),
                    y: spanOf(all.flatMap((p) => [p.y, p.low, p.high]), this.state.logarithmic, true)};
    const made = drawn.map((group) => {
      const plot = element("div", {className: "plot"});
      return {group, plot, panel: element("div", {className: "panel"}, ...(group.title ? [element("h4", {}, group.title)] : []), plot)};
    });
    const more = groups.length > drawn.length && drawn.length === MAX_PANELS
      ? [element("p", {}, `${groups.length - drawn.length} more panels are not drawn; choose fewer settings.`)] : [];
    this.panels.replaceChildren(...made.map((m) => m.panel), ...more);
    // Panels beside each other have the same room above them, so that their axes are at one height.
    const lanes = Math.max(...drawn.map((group) => new Set(group.gaps.map((gap) => gap.series)).size));
    for (const {group, plot} of made) {
      const options = {renderer: "svg", actions: {export: true, source: false, compiled: false, editor: false}, tooltip: {theme: isDark.matches ? "dark" : "light"}};
      vegaEmbed(plot, this.specification(group, domain, lanes), options).catch((error) => {
        if (token === this.token) plot.replaceChildren(element("p", {}, `The chart could not be drawn: ${error.message}`));
      });
    }
  }

  // A horizontal axis of few round numbers, such as runs, is not logarithmic.
  isLogX(points) {
    if (this.x.column === "_run" || this.x.column === "update" || this.x.column === "epoch") return false;
    return this.x.form === "length" || (this.state.logarithmic && points.every((p) => p.x > 0));
  }

  specification({title, points, gaps}, domain, room) {
    const {state} = this;
    const theme = themeOf();
    const looks = this.config.series;
    const spec = structuredClone(DATA.specification);
    const colourOf = (look) => state.byRun ? theme.ink : isDark.matches ? look.dark : look.colour;
    const names = looks.map((look) => look.name);
    const ranges = {
      color: looks.map(colourOf), stroke: looks.map(colourOf), shape: looks.map((look) => look.shape),
      fill: looks.map((look) => look.hollow ? theme.page : colourOf(look)), strokeDash: looks.map((look) => look.dash.length ? look.dash : [1, 0]),
    };
    const ratio = this.y.has_ratio && state.ratioTo;
    const yTitle = ratio ? `${this.y.title} / that of ${this.nameOf(ratio)}`
      : this.y.title + (this.y.divided && state.divided ? " per sequence" : "") + (this.isCut ? `, ≥ ${this.y.floor}` : "");
    const yForm = ratio ? "number" : this.y.form;
    const scale = (log, form, span) => ({type: log ? "log" : "linear", nice: false, domain: span,
      ...(log ? {base: form === "bytes" || form === "length" ? 2 : 10} : {zero: false})});
    const isLogX = this.isLogX(points);
    const lengths = [...new Set([...points, ...gaps].map((p) => p.x))].sort((a, b) => a - b);
    const xAxis = {title: this.x.title, labelExpr: LABELS[this.x.form], grid: false, labelOverlap: true,
      ...(lengths.length <= 12 && this.x.form !== "time" ? {values: lengths}
        : isLogX ? {values: logTicks(domain.x, this.x.form)} : {tickCount: 6})};
    for (const layer of spec.layer) {
      Object.assign(layer.encoding.x, {scale: scale(isLogX, this.x.form, domain.x), axis: xAxis});
      if (layer.encoding.y) Object.assign(layer.encoding.y, {
        scale: scale(state.logarithmic, yForm, domain.y), axis: {title: yTitle, labelExpr: LABELS[yForm],
        ...(state.logarithmic ? {values: logTicks(domain.y, yForm)} : {tickCount: 6})}});
      for (const [channel, range] of Object.entries(ranges))
        if (layer.encoding[channel]) layer.encoding[channel].scale = {domain: names, range};
    }
    const told = [...new Set(points.flatMap(Object.keys))].filter((name) => !["x", "y", "low", "high", "series", "part"].includes(name));
    for (const point of points) for (const name of told) point[name] ??= "–";
    const tooltip = (fields) => fields.map((field) => ({field, type: "nominal", title: field}));
    const marks = spec.layer[spec.layer.length - 1];
    marks.encoding.tooltip = tooltip(told);
    // Two runs differ in their colour, unless the reader wants colours for the methods; more runs differ in how strong their lines are.
    if (state.byRun) for (const layer of spec.layer)
      for (const channel of ["color", "stroke", "fill"])
        if (layer.encoding[channel])
          layer.encoding[channel] = {field: "part", type: "nominal", legend: null, scale: {domain: this.config.parts, range: [theme.one, theme.other]}};
    // Where both have the same values, the first run is seen around the second.
    if (state.byRun) for (const [layer, channel, range] of [[spec.layer[0], "strokeWidth", [5, 1.7]], [marks, "size", [150, 45]]])
      layer.encoding[channel] = {field: "part", type: "ordinal", sort: this.config.parts, legend: null, scale: {domain: this.config.parts, range}};
    if (this.config.part === "_folder" && !state.byRun) for (const layer of spec.layer)
      layer.encoding.opacity = {field: "part", type: "ordinal", sort: this.config.parts, legend: null, scale: {domain: this.config.parts,
        range: this.config.parts.map((_, k) => 0.4 + 0.6 * (k + 1) / this.config.parts.length)}};
    [...new Set(gaps.map((gap) => gap.series))].forEach((series, k) => {
      const look = looks[names.indexOf(series)];
      spec.layer.push({
        data: {values: gaps.filter((gap) => gap.series === series)},
        mark: {type: "point", shape: "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7", size: 60, strokeWidth: 2, opacity: 1, clip: false, stroke: colourOf(look)},
        encoding: {x: {field: "x", type: "quantitative", scale: scale(isLogX, this.x.form, domain.x), axis: xAxis}, y: {value: -9 - 11 * k},
                   tooltip: tooltip(["Method", "Missing", "N"].filter((name) => name !== "N" || gaps[0].N))},
      });
    });
    spec.datasets = {points};
    spec.description = `${yTitle} against ${this.x.title}${title ? `, ${title}` : ""}: ${points.length} points of ${new Set(points.map((p) => p.series)).size} methods`;
    spec.padding = {left: 5, right: 8, bottom: 5, top: 8 + 11 * room};
    spec.autosize = {type: "fit", contains: "padding", resize: true};
    spec.height += 11 * room;
    spec.background = null;
    spec.config = {
      view: {stroke: null}, font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
      axis: {labelColor: theme.ink, titleColor: theme.ink, gridColor: theme.line, domainColor: theme.quiet, tickColor: theme.quiet,
             labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal"},
    };
    return spec;
  }
}

// The span of an axis with a little room at both ends. With `fromZero`, a linear axis begins at zero unless that wasted its room.
function spanOf(values, logarithmic, fromZero = false) {
  const finite = values.filter((v) => Number.isFinite(v) && (!logarithmic || v > 0));
  let low = Math.min(...finite), high = Math.max(...finite);
  if (logarithmic) {
    const room = low === high ? 2 : (high / low) ** 0.04;
    return [low / room, high * room];
  }
  if (fromZero && low > 0 && low < 0.6 * high) low = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  return [low === 0 ? 0 : low - room, high + room];
}

// The ticks of a logarithmic axis: powers of 2 for sizes and lengths; otherwise powers of 10, where these are few also 2 and 5, and
// where these are few, too, values at equal distances.
function logTicks([low, high], form) {
  const base = form === "bytes" || form === "length" ? 2 : 10;
  const exponents = [Math.ceil(Math.log(low) / Math.log(base) - 1e-9), Math.floor(Math.log(high) / Math.log(base) + 1e-9)];
  const step = Math.max(1, Math.ceil((exponents[1] - exponents[0] + 1) / 8));
  const powers = [];
  for (let e = exponents[0]; e <= exponents[1]; e += step) powers.push(base ** e);
  if (base === 2 || powers.length >= 3) return powers;
  const finer = [];
  for (let e = exponents[0] - 1; e <= exponents[1]; ++e)
    for (const k of [1, 2, 5]) if (k * 10 ** e >= low && k * 10 ** e <= high) finer.push(k * 10 ** e);
  if (finer.length >= 3) return finer;
  const room = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(room));
  const distance = unit * [1, 2, 5, 10].find((k) => k * unit >= room);
  const equal = [];
  for (let k = Math.ceil(low / distance); k * distance <= high; ++k) equal.push(k * distance);
  return equal;
}

// The line and the mark of a series, for the legend.
// If colours stand for runs, it has that of texts.
function swatch(look, {page, ink}, isPlain) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "-17 -8 34 16");
  svg.setAttribute("aria-hidden", "true");
  const part = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    svg.append(made);
  };
  const colour = isPlain ? ink : isDark.matches ? look.dark : look.colour;
  part("path", {d: "M-17,0H17", stroke: colour, "stroke-width": 1.8, "stroke-dasharray": look.dash.join(" "), fill: "none"});
  part("path", {d: look.shape, transform: "scale(4.4)", stroke: colour, "stroke-width": 1.5,
                "vector-effect": "non-scaling-stroke", fill: look.hollow && !isPlain ? page : colour});
  return svg;
}

// ---------------------------------------------------------------- tables

class Table {
  constructor(place) {
    this.lines = LINES[place.dataset.lines];
    this.controls = place.querySelector(".controls");
    this.table = place.querySelector("table");
    this.more = place.querySelector(".more");
    // The names of the runs if there are two, which have colours.
    const names = [...new Set(this.lines.rows.map((row) => this.lines.get(row, "_folder")))];
    const parts = (DATA.charts[place.dataset.lines] || {}).parts || [];
    this.runs = names.length === 2 && parts.length === 2 ? parts : [];
    this.state = {words: "", outcome: "", all: false, sort: null, descending: false, count: ROWS};
    this.controls.addEventListener("submit", (event) => event.preventDefault());
    this.makeControls();
    this.more.addEventListener("click", () => { this.state.count += ROWS; this.fill(); });
    this.fill();
  }

  makeControls() {
    const {state} = this;
    const search = element("input", {type: "search", placeholder: "linear 4096 -backward"});
    search.addEventListener("input", () => { state.words = search.value; state.count = ROWS; this.fill(); });
    const outcomes = [...new Set(this.lines.rows.map((row) => this.lines.get(row, "outcome")))];
    const list = element("select", {"aria-label": "Outcome"}, element("option", {value: ""}, "all"), ...outcomes.map((o) => element("option", {value: o}, o)));
    list.addEventListener("change", () => { state.outcome = list.value; state.count = ROWS; this.fill(); });
    const all = element("input", {type: "checkbox"});
    all.addEventListener("change", () => { state.all = all.checked; this.fill(); });
    this.controls.replaceChildren(
      element("label", {}, element("span", {}, "Only records with these words (-word leaves out)"), search),
      element("label", {}, element("span", {}, "Outcome"), list),
      element("label", {className: "box"}, all, "show all columns"));
  }

  // The text of a row that the search looks at.
  textOf(row) {
    const {lines} = this;
    const names = [...lines.usual, "_panel", "_name", "_missing", "reason"];
    return names.map((name) => lines.get(row, name)).filter((v) => v !== null && v !== undefined).join(" ").toLowerCase();
  }

  chosen() {
    const {lines, state} = this;
    const words = state.words.toLowerCase().split(/\s+/).filter((word) => word && word !== "-");
    const rows = lines.rows.filter((row) => {
      if (state.outcome && lines.get(row, "outcome") !== state.outcome) return false;
      const text = words.length ? this.textOf(row) : "";
      return words.every((word) => word.startsWith("-") ? !text.includes(word.slice(1)) : text.includes(word));
    });
    if (!state.sort) return rows;
    const key = (row) => lines.get(row, state.sort);
    const sign = state.descending ? -1 : 1;
    return rows.sort((a, b) => {
      const [one, other] = [key(a), key(b)];
      // Rows without a value are always last.
      if (one === null || other === null) return (one === null) - (other === null);
      return sign * (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other)));
    });
  }

  fill() {
    const {lines, state} = this;
    const names = state.all ? [...lines.usual, ...lines.columns.map((c) => c.name).filter((n) => !lines.usual.includes(n) && n !== "_command")] : lines.usual;
    const heads = names.map((name) => {
      const button = element("button", {type: "button", title: lines.column(name).about}, head(name, lines));
      button.addEventListener("click", () => {
        state.descending = state.sort === name ? !state.descending : false;
        state.sort = name;
        this.fill();
        this.table.querySelector(`th[data-column="${name}"] button`).focus();
      });
      const sorted = state.sort === name ? (state.descending ? "descending" : "ascending") : "none";
      return element("th", {scope: "col", "data-column": name, "aria-sort": sorted}, button);
    });
    this.table.tHead.replaceChildren(element("tr", {}, element("th", {scope: "col"}, "record"), ...heads));
    const rows = this.chosen();
    this.table.caption.textContent = rows.length === lines.rows.length ? `${rows.length} records` : `${rows.length} of ${lines.rows.length} records`;
    this.table.tBodies[0].replaceChildren(...rows.slice(0, state.count).map((row) => this.rowOf(row, names)));
    this.more.hidden = rows.length <= state.count;
  }

  rowOf(row, names) {
    const {lines} = this;
    const cells = names.map((name) => {
      const own = lines.get(row, name);
      // A Python method has a shorter name than the text by which it is measured.
      const value = (name === "method" && String(own).includes(".py:") && lines.get(row, "_name")) || own;
      const text = shown(lines.column(name), value);
      const run = name === "_folder" ? this.runs.indexOf(value) : -1;
      const inside = run < 0 ? text : element("span", {className: `run ${run ? "other" : "one"}`}, text);
      return element("td", {className: typeof value === "number" ? "number" : ""}, inside);
    });
    const details = element("button", {type: "button"}, "Details");
    details.addEventListener("click", () => showDetails(lines, row));
    return element("tr", {}, element("td", {className: "action"}, details), ...cells);
  }
}

function showDetails(lines, row) {
  const dialog = document.getElementById("details");
  dialog.querySelector("h3").textContent = `${lines.get(row, "_name")} · ${lines.get(row, "_panel")} · N = ${lines.get(row, "query_len")}`;
  const command = lines.get(row, "_command");
  dialog.querySelector(".commands").replaceChildren(element("p", {}, element("code", {}, command), copyButton(command)));
  const rows = lines.columns.filter((column) => column.name !== "_command" && lines.get(row, column.name) !== null).map((column) => {
    const value = lines.get(row, column.name);
    return element("tr", {}, element("td", {}, column.name.replace(/^_/, "")), element("td", {}, shown(column, value)), element("td", {}, column.about));
  });
  dialog.querySelector("tbody").replaceChildren(...rows);
  dialog.showModal();
}

// ---------------------------------------------------------------- edges of tables

// Gives the edges of what scrolls shadows where it goes on.
function showEdges(scroll) {
  const edges = element("div", {className: "edges"});
  scroll.replaceWith(edges);
  edges.append(scroll, ...["left", "right", "below"].map((side) => element("i", {className: side})));
  const update = () => {
    edges.classList.toggle("more-left", scroll.scrollLeft > 1);
    edges.classList.toggle("more-right", scroll.scrollLeft + scroll.clientWidth < scroll.scrollWidth - 1);
    edges.classList.toggle("more-below", scroll.scrollTop + scroll.clientHeight < scroll.scrollHeight - 1);
  };
  scroll.addEventListener("scroll", update, {passive: true});
  const observer = new ResizeObserver(update);
  observer.observe(scroll);
  for (const table of scroll.querySelectorAll("table")) observer.observe(table);
  update();
}

// ---------------------------------------------------------------- commands

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.text);
    button.textContent = "Copied";
  } catch {
    // Without the permission, the command is selected, so that the reader can copy it.
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = "Selected";
  }
}

function copyButton(text) {
  const button = element("button", {type: "button", className: "copy", "data-text": text}, "Copy");
  button.addEventListener("click", () => copy(button));
  return button;
}

for (const scroll of document.querySelectorAll(".scroll")) showEdges(scroll);
for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", () => copy(button));
for (const place of document.querySelectorAll(".chart")) new Chart(place);
for (const place of document.querySelectorAll(".records")) new Table(place);
