"use strict";
// A picture of power over time that zooms to single readings. The page holds a model as JSON in an element of the class
// "trace-model"; the picture is put before that element. Columns come from layers in the model, or from the server.
(() => {
  const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];
  const BUTTONS = [["ArrowLeft", "◀", "Earlier"], ["ArrowRight", "▶", "Later"], ["+", "+", "Nearer"], ["-", "−", "Farther"],
    ["Home", "whole", "The whole trace"]];
  const HELP = "drag to zoom, Shift+drag to move, Ctrl+wheel or + and − to zoom, double click for the whole";
  const LEFT = 72, RIGHT = 26, TOP = 10, BOTTOM = 34, HEIGHT = 280;

  // ---- numbers ------------------------------------------------------------------------------
  const prefixOf = size => size > 0 ? PREFIXES.find(([f]) => size >= f) || PREFIXES.at(-1) : [1, ""];

  function si(value, unit, digits = 4) {
    if (!Number.isFinite(value)) return "no reading";
    const [f, name] = prefixOf(Math.abs(value) * (1 + 1e-9));
    return `${Number((value / f).toPrecision(digits))} ${name}${unit}`;
  }

  function ticks(low, high, most) {  // round numbers between two others, and the decimals that tell them apart
    const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find(m => m * power >= raw * (1 - 1e-9));
    const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
    const decimals = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 12);
    return { at: Array.from({ length: count }, (_, k) => (first + k) * step), decimals };
  }

  function statistics(view, low, high) {  // over the readings between two moments; columns that are cut count in part
    let length = 0, area = 0, least = Infinity, most = -Infinity;
    for (let k = 0; k < view.mean.length; k++) {
      const part = Math.min(view.edges[k + 1], high) - Math.max(view.edges[k], low);
      if (!(part > 0) || !isNumber(view.mean[k])) continue;
      length += part; area += part * view.mean[k];
      least = Math.min(least, view.least[k]); most = Math.max(most, view.most[k]);
    }
    return { length, area, mean: length ? area / length : NaN, least, most };
  }

  const isNumber = x => x !== null && Number.isFinite(x);

  // ---- where columns come from ---------------------------------------------------------------
  function decoded(text, Kind) {
    return new Kind(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer);
  }

  function opened(layer) {  // layers of equal columns state only their ends; single readings have no least and greatest
    const mean = decoded(layer.mean, Float32Array), n = mean.length, step = (layer.high - layer.low) / n;
    const edges = layer.edges ? decoded(layer.edges, Float64Array)
      : Float64Array.from({ length: n + 1 }, (_, k) => k < n ? layer.low + k * step : layer.high);
    const least = layer.least ? decoded(layer.least, Float32Array) : mean;
    return { ...layer, edges, mean, least, most: layer.most ? decoded(layer.most, Float32Array) : mean };
  }

  function below(sorted, x) {  // how many values are not above x
    let low = 0, high = sorted.length;
    while (low < high) { const m = (low + high) >> 1; if (sorted[m] <= x) low = m + 1; else high = m; }
    return low;
  }

  function chosen(layers, low, high, columns) {  // the finest layer that covers the part with at most 4 values per column
    const [begin, end] = [layers.at(-1).low, layers.at(-1).high];
    const holding = layers.filter(x => x.low <= Math.max(low, begin) && x.high >= Math.min(high, end)).map(x => {
      const first = Math.max(below(x.edges, low) - 1, 0), last = Math.min(below(x.edges, high) + 1, x.mean.length);
      return { layer: x, first, last };
    });
    const { layer, first, last } = holding.find(x => x.last - x.first <= 4 * columns) || holding.at(-1);
    const part = name => layer[name].subarray(first, last);
    return { edges: layer.edges.subarray(first, last + 1), least: part("least"), mean: part("mean"), most: part("most"),
      single: layer.single };
  }

  function fromPage(model) {
    const layers = model.rails.map(rail => rail.layers.map(opened));  // the finest first, the whole trace last
    const spans = model.spans.map(x => decoded(x, Float64Array));
    return async (rail, low, high, columns) => {
      const seen = [];
      spans.forEach((s, phase) => {
        for (let k = 0; k < s.length; k += 2) if (s[k + 1] >= low && s[k] <= high) seen.push([phase, s[k], s[k + 1]]);
      });
      return { ...chosen(layers[rail], low, high, columns), spans: seen, hidden: model.hidden };
    };
  }

  async function fromServer(rail, low, high, columns) {
    const answer = await fetch(`data?rail=${rail}&low=${low}&high=${high}&columns=${columns}`);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return answer.json();
  }

  // ---- the picture ----------------------------------------------------------------------------
  function element(kind, parent, text, attributes) {
    const made = document.createElement(kind);
    if (text) made.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
    parent.append(made);
    return made;
  }

  function drawn(canvas, view, low, high, model, rail) {
    const style = getComputedStyle(canvas), colour = name => style.getPropertyValue(name).trim();
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    canvas.width = width * ratio; canvas.height = HEIGHT * ratio;
    pen.scale(ratio, ratio);
    const within = { w: width - LEFT - RIGHT, h: HEIGHT - TOP - BOTTOM };
    let least = Infinity, most = -Infinity;
    for (const x of view.least) if (isNumber(x)) least = Math.min(least, x);
    for (const x of view.most) if (isNumber(x)) most = Math.max(most, x);
    if (!(least <= most)) [least, most] = [0, 1];
    const room = 0.06 * (most - least) || 0.1 * Math.abs(most) || 1;
    [least, most] = [least - room, most + room];
    const x = t => LEFT + (t - low) / (high - low) * within.w, y = v => TOP + (most - v) / (most - least) * within.h;
    const [factor, prefix] = prefixOf(Math.max(Math.abs(least), Math.abs(most)));
    const up = ticks(least / factor, most / factor, 6), along = ticks(low, high, Math.max(4, within.w / 130));
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colour("--muted"); pen.strokeStyle = colour("--line");
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const v of up.at) {
      pen.strokeRect(LEFT, y(v * factor), within.w, 0);
      pen.fillText(v.toFixed(up.decimals), LEFT - 6, y(v * factor));
    }
    pen.textAlign = "center"; pen.textBaseline = "top";
    for (const t of along.at) {
      pen.strokeRect(x(t), TOP + within.h, 0, 5);
      pen.fillText(t.toFixed(along.decimals), x(t), TOP + within.h + 7);
    }
    pen.textAlign = "left";
    pen.fillText(prefix + rail.unit, 4, TOP);
    pen.fillText("s", width - RIGHT - 6, HEIGHT - 13);
    pen.fillStyle = colour("--sim");
    pen.fillText(model.mark, LEFT + 6, TOP + 6);
    pen.save();
    pen.beginPath(); pen.rect(LEFT, TOP, within.w, within.h); pen.clip();
    pen.globalAlpha = 0.3;
    for (const [phase, begin, end] of view.spans) {
      pen.fillStyle = model.phases[phase].colour;
      pen.fillRect(x(begin), TOP, Math.max(x(end) - x(begin), 1), within.h);
    }
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--muted"); pen.textAlign = "center"; pen.textBaseline = "bottom";
    for (const [phase, begin, end] of view.spans) {  // colours alone may look alike
      const [a, b] = [Math.max(x(begin), LEFT), Math.min(x(end), LEFT + within.w)], name = model.phases[phase].name;
      if (pen.measureText(name).width < b - a - 8) pen.fillText(name, (a + b) / 2, TOP + within.h - 3);
    }
    pen.fillStyle = colour("--band");
    for (let k = 0; k < view.mean.length && !view.single; k++) {
      if (!isNumber(view.mean[k])) continue;
      const a = Math.floor(x(view.edges[k])), top = y(view.most[k]);
      pen.fillRect(a, top, Math.max(Math.ceil(x(view.edges[k + 1])) - a, 1), Math.max(y(view.least[k]) - top, 1));
    }
    pen.strokeStyle = colour("--ink"); pen.lineWidth = 1.2;
    pen.beginPath();
    let on = false;
    for (let k = 0; k < view.mean.length; on = isNumber(view.mean[k++])) {
      if (!isNumber(view.mean[k])) continue;
      const [a, b, v] = [x(view.edges[k]), x(view.edges[k + 1]), y(view.mean[k])];
      if (on) pen.lineTo(a, v); else pen.moveTo(a, v);
      pen.lineTo(b, v);
    }
    pen.stroke();
    pen.restore();
  }

  function mounted(place) {
    const model = JSON.parse(place.textContent), whole = model.extent, box = document.createElement("div");
    const source = model.rails[0].layers ? fromPage(model) : fromServer;
    box.className = "trace";
    place.before(box);
    if (box.parentElement.tagName === "FIGURE") box.parentElement.classList.add("live");
    const bar = element("div", box, "", { class: "trace-bar" });
    const rails = element("select", bar, "", { "aria-label": "Rail" });
    model.rails.forEach((r, k) => element("option", rails, r.name, { value: k }));
    const jumps = element("select", bar, "", { "aria-label": "Go to a span" });
    element("option", jumps, "go to a span", { value: "" });
    const groups = new Map();
    model.jumps.forEach((jump, k) => {
      if (!groups.has(jump.title)) groups.set(jump.title, element("optgroup", jumps, "", { label: jump.title }));
      element("option", groups.get(jump.title), jump.text, { value: k });
    });
    const canvas = element("canvas", box, "", { tabindex: "0", role: "img", "aria-label": "Power over time" });
    const said = element("p", box, "", { class: "sub", "aria-live": "polite" });
    const key = element("p", box, "", { class: "sub trace-key" });
    for (const phase of model.phases) {
      element("i", key, "").style.background = phase.colour;
      element("span", key, phase.name);
    }
    const place0 = /^#at=([^,]+),([^,]+)(?:,(\d+))?$/.exec(location.hash);
    let [low, high] = place0 ? [Number(place0[1]), Number(place0[2])] : whole, turn = 0, shown = null;
    if (place0 && place0[3] < model.rails.length) rails.value = place0[3];

    async function show(a, b) {
      const least = Math.max((whole[1] - whole[0]) * 1e-12, 1e-9), middle = (a + b) / 2;
      if (!(b - a >= least)) [a, b] = [middle - least / 2, middle + least / 2];
      [low, high] = [Math.max(a, whole[0]), Math.min(b, whole[1])];
      if (!(low < high)) [low, high] = whole;
      const mine = ++turn, [from, to] = [low, high], rail = model.rails[rails.value];
      try {
        const view = await source(Number(rails.value), from, to, Math.max(Math.floor(canvas.clientWidth - LEFT), 50));
        if (mine !== turn) return;
        shown = () => drawn(canvas, view, from, to, model, rail);
        shown();
        const s = statistics(view, from, to), energy = rail.unit === "W" ? `, energy ${si(s.area, "J")}` : "";
        const kind = view.single ? "single readings" : `columns of ${si(view.edges[1] - view.edges[0], "s")}`;
        const [mean, least, most] = [s.mean, s.least, s.most].map(x => si(x, rail.unit));
        said.textContent = `${si(to - from, "s", 6)} in view: mean ${mean}, least ${least}, greatest ${most}${energy}; `
          + kind + (view.hidden ? `; ${view.hidden}` : "");
      } catch (error) {
        said.textContent = `No picture: ${error.message}`;
      }
    }
    const zoom = (by, at) => show(at - (at - low) * by, at + (high - at) * by), middle = () => (low + high) / 2;
    const pan = by => {
      const move = Math.min(Math.max(by * (high - low), whole[0] - low), whole[1] - high);
      return show(low + move, high + move);
    };
    const keys = { "+": () => zoom(0.5, middle()), "-": () => zoom(2, middle()), ArrowLeft: () => pan(-0.25),
      ArrowRight: () => pan(0.25), Home: () => show(...whole) };
    for (const [name, text, title] of BUTTONS) element("button", bar, text, { type: "button", title }).onclick = keys[name];
    element("span", bar, HELP, { class: "sub" });
    const width = () => canvas.clientWidth - LEFT - RIGHT;
    const time = event => low + (event.offsetX - LEFT) / width() * (high - low);
    let held = null;
    canvas.onpointerdown = event => {
      held = { at: time(event) };
      canvas.setPointerCapture(event.pointerId);
    };
    canvas.onpointermove = event => {
      if (!held) return;
      if (event.shiftKey) { const move = held.at - time(event); show(low + move, high + move); return; }
      const pen = canvas.getContext("2d"), px = t => LEFT + (t - low) / (high - low) * width();
      shown?.();
      pen.globalAlpha = 0.2;
      pen.fillRect(px(held.at), TOP, px(time(event)) - px(held.at), HEIGHT - TOP - BOTTOM);
    };
    canvas.onpointerup = event => {
      const from = held.at, to = time(event);
      held = null;
      if (!event.shiftKey && Math.abs(to - from) > 0.005 * (high - low)) show(Math.min(from, to), Math.max(from, to));
      else shown?.();
    };
    canvas.ondblclick = keys.Home;
    canvas.onwheel = event => {
      if (!event.ctrlKey && !event.metaKey) return;  // without the key the page scrolls
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, time(event));
    };
    canvas.onkeydown = event => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } };
    rails.onchange = () => show(low, high);
    jumps.onchange = () => {
      const jump = model.jumps[jumps.value];
      if (jump) show(jump.low - 0.5 * (jump.high - jump.low), jump.high + 0.5 * (jump.high - jump.low));
    };
    window.addEventListener("resize", () => show(low, high));
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.());
    show(low, high);
  }

  if (typeof document === "undefined") module.exports = { chosen, opened, si, statistics, ticks };
  else document.querySelectorAll(".trace-model").forEach(mounted);
})();
