"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const meta = JSON.parse(element("meta").textContent);
  const map = element("map"), lines = element("lines"), readout = element("readout"), nav = element("metrics");
  const scale = element("scale"), legend = element("legend");
  if (meta.cpus.length === 0 || meta.count === 0) {
    map.remove(); lines.remove(); scale.remove(); legend.remove();
    readout.textContent = "The trace has no requests to draw.";
    return;
  }
  const end = meta.start + meta.count * meta.width;
  const left = 64, right = 28;
  let metric = 0, from = meta.start, to = end, pointer = null, drawing = false;
  let chosen = new Set(meta.cpus.length <= 16 ? meta.cpus.keys() : [0]);
  const decoded = new Map();

  // Pairs of 16-bit shares: least, most; 0 is no sample.
  function values(at) {
    if (!decoded.has(at)) {
      const text = atob(element("values" + at).textContent);
      const bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      decoded.set(at, new Uint16Array(bytes.buffer, 0, bytes.length >> 1));
    }
    return decoded.get(at);
  }

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (number) => `hsl(${(number * 137.5) % 360} 65% 50%)`;

  // From dark blue to yellow, which differ in lightness too: in grey, and for any colour vision.
  const shade = (share) =>
    [30 + 225 * Math.min(1, 1.6 * share), 40 + 190 * Math.max(0, 1.4 * share - 0.4), 110 * (1 - share) + 40].map(Math.round);

  // What the colours of the map and of the lines stand for.
  function explain() {
    const about = meta.metrics[metric], unit = about.unit ? " " + about.unit : "";
    const digits = Math.max(0, Math.min(3, 3 - Math.floor(Math.log10(Math.max(about.high - about.low, 1e-9)))));
    const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => `rgb(${shade(share).join(",")})`);
    const bar = document.createElement("i");
    bar.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    scale.replaceChildren(about.low.toFixed(digits) + unit, bar, about.high.toFixed(digits) + unit);
    legend.replaceChildren(...[...chosen].sort((a, b) => a - b).slice(0, 64).map((cpu) => {
      const entry = document.createElement("span"), swatch = document.createElement("i");
      swatch.style.background = colour(cpu);
      entry.append(swatch, "CPU " + meta.cpus[cpu]);
      return entry;
    }));
  }

  function prepare(canvas, height) {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.style.height = height + "px";
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.max(1, Math.round(height * ratio));
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    return [context, width, height];
  }

  // For each pixel column the least and most of its stretches, of one CPU: 0 and 0 without a sample.
  function columns(cpu, width, low, high) {
    const all = values(metric), base = cpu * meta.count * 2;
    low.fill(0); high.fill(0);
    const scale = width / (to - from);
    const first = Math.max(0, Math.floor((from - meta.start) / meta.width));
    const last = Math.min(meta.count - 1, Math.ceil((to - meta.start) / meta.width));
    for (let i = first; i <= last; i++) {
      const most = all[base + 2 * i + 1];
      if (most === 0) continue;
      const least = all[base + 2 * i];
      const x = Math.min(width - 1, Math.max(0, Math.floor((meta.start + i * meta.width - from) * scale)));
      if (high[x] === 0) { low[x] = least; high[x] = most; continue; }
      if (least < low[x]) low[x] = least;
      if (most > high[x]) high[x] = most;
    }
  }

  // The most of the last stretch with a sample before the view.
  function before(cpu) {
    const all = values(metric), base = cpu * meta.count * 2;
    for (let i = Math.floor((from - meta.start) / meta.width) - 1; i >= 0; i--) {
      if (all[base + 2 * i + 1] !== 0) return all[base + 2 * i + 1];
    }
    return 0;
  }

  const value = (share) => meta.metrics[metric].low + (share - 1) / 65534 * (meta.metrics[metric].high - meta.metrics[metric].low);

  function steps(low, high, count) {
    const raw = Math.max((high - low) / count, 1e-12), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw);
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(at * step);
    return [found, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
  }

  function drawMap() {
    const row = Math.max(1, Math.min(16, Math.floor(480 / meta.cpus.length)));
    const [context, width, height] = prepare(map, row * meta.cpus.length + 4);
    const plot = Math.max(1, Math.floor(width - left - right));
    const image = context.createImageData(plot, meta.cpus.length);
    const low = new Uint16Array(plot), high = new Uint16Array(plot);
    for (let cpu = 0; cpu < meta.cpus.length; cpu++) {
      columns(cpu, plot, low, high);
      let held = before(cpu);
      for (let x = 0; x < plot; x++) {
        // A level holds until the next sample.
        if (high[x] !== 0) held = high[x];
        if (held === 0) continue;
        const share = held / 65535, at = 4 * (cpu * plot + x);
        [image.data[at], image.data[at + 1], image.data[at + 2]] = shade(share);
        image.data[at + 3] = 255;
      }
    }
    const small = new OffscreenCanvas(plot, meta.cpus.length);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, left, 0, plot, row * meta.cpus.length);
    context.fillStyle = style("--faint");
    context.textAlign = "right";
    const every = Math.max(1, Math.ceil(14 / row));
    for (let cpu = 0; cpu < meta.cpus.length; cpu += every) {
      context.fillText("CPU " + meta.cpus[cpu], left - 6, Math.max(10, cpu * row + Math.min(12, row + 6)));
    }
    context.strokeStyle = style("--chosen");
    if (meta.cpus.length > 1) for (const cpu of chosen) context.strokeRect(left - 1, cpu * row, plot + 2, row);
  }

  function drawLines() {
    const [context, width, height] = prepare(lines, 320);
    const plot = Math.max(1, Math.floor(width - left - right)), bottom = height - 24, top = 8;
    const about = meta.metrics[metric], span = about.high - about.low || 1;
    const y = (share) => bottom - (share - 1) / 65534 * (bottom - top);
    context.strokeStyle = style("--line");
    context.fillStyle = style("--faint");
    const [marks, digits] = steps(about.low, about.low + span, 6);
    context.textAlign = "right";
    for (const mark of marks) {
      const at = bottom - (mark - about.low) / span * (bottom - top);
      context.beginPath(); context.moveTo(left, at); context.lineTo(left + plot, at); context.stroke();
      context.fillText(mark.toFixed(digits) + (about.unit ? " " + about.unit : ""), left - 6, at + 4);
    }
    context.textAlign = "center";
    const [times, places] = steps(from, to, Math.max(1, Math.min(8, Math.floor(plot / 60))));
    for (const time of times) {
      const at = left + (time - from) / (to - from) * plot;
      context.beginPath(); context.moveTo(at, bottom); context.lineTo(at, bottom + 4); context.stroke();
      context.fillText(time.toFixed(places) + " " + meta.unit, at, bottom + 17);
    }
    context.save();
    context.beginPath(); context.rect(left, 0, plot, height); context.clip();
    const low = new Uint16Array(plot), high = new Uint16Array(plot);
    context.lineWidth = 1;
    for (const cpu of chosen) {
      columns(cpu, plot, low, high);
      context.strokeStyle = context.fillStyle = colour(cpu);
      context.beginPath();
      let open = false;
      const stretch = plot * meta.width / (to - from);
      if (stretch > 3) {
        // Wider than a line: what is known of a stretch is its least and most, nothing of the way between them.
        for (let x = 0, next; x < plot; x = next) {
          for (next = x + 1; next < plot && high[next] === 0; next++);
          if (high[x] === 0) continue;
          const end = Math.min(next, x + Math.ceil(stretch)), up = y(high[x]), down = y(low[x]);
          context.globalAlpha = 0.25;
          context.fillRect(left + x, up, end - x, down - up);
          context.globalAlpha = 1;
          context.moveTo(left + x, up); context.lineTo(left + end, up);
          if (low[x] !== high[x]) { context.moveTo(left + x, down); context.lineTo(left + end, down); }
          // Between stretches of one value each, the line says which follows which.
          else if (next < plot && low[next] === high[next]) context.lineTo(left + next, y(high[next]));
        }
        context.stroke();
        continue;
      }
      for (let x = 0; x < plot; x++) {
        if (high[x] === 0) continue;
        const at = left + x + 0.5;
        if (open) context.lineTo(at, y(high[x])); else context.moveTo(at, y(high[x]));
        if (low[x] !== high[x]) context.lineTo(at, y(low[x]));
        open = true;
      }
      context.stroke();
    }
    if (pointer !== null && pointer.time >= from && pointer.time <= to) {
      const at = left + (pointer.time - from) / (to - from) * plot;
      context.strokeStyle = style("--faint");
      context.beginPath(); context.moveTo(at, top); context.lineTo(at, bottom); context.stroke();
    }
    context.restore();
  }

  function say() {
    if (pointer === null) { readout.textContent = ""; return; }
    const about = meta.metrics[metric], all = values(metric);
    const at = Math.floor((pointer.time - meta.start) / meta.width);
    const parts = [`${pointer.time.toFixed(6)} ${meta.unit}`];
    const shown = pointer.cpu === null ? [...chosen].slice(0, 8) : [pointer.cpu];
    for (const cpu of shown) {
      let place = Math.min(at, meta.count - 1);
      while (place >= 0 && all[(cpu * meta.count + place) * 2 + 1] === 0) place--;
      if (place < 0) continue;
      const least = value(all[(cpu * meta.count + place) * 2]), most = value(all[(cpu * meta.count + place) * 2 + 1]);
      const range = least === most ? most.toFixed(3) : `${least.toFixed(3)} to ${most.toFixed(3)}`;
      parts.push(`CPU ${meta.cpus[cpu]}: ${range} ${about.unit}`.trim());
    }
    readout.textContent = parts.join("   ");
  }

  // The view is in the address, so that it can be kept and passed on: #from=1.5&to=2&value=load&cpus=0,3
  function remember() {
    const words = new URLSearchParams();
    if (from > meta.start || to < end) { words.set("from", from); words.set("to", to); }
    if (metric > 0) words.set("value", meta.metrics[metric].title);
    if (meta.cpus.length > 16) words.set("cpus", [...chosen].map((cpu) => meta.cpus[cpu]).join(","));
    const text = words.toString(), hash = text === "" ? "" : "#" + text;
    if (hash !== location.hash) history.replaceState(null, "", location.pathname + location.search + hash);
  }

  function recall() {
    const words = new URLSearchParams(location.hash.slice(1));
    const value = meta.metrics.findIndex((about) => about.title === words.get("value"));
    metric = Math.max(0, value);
    [...nav.children].forEach((button, at) => button.setAttribute("aria-pressed", String(at === metric)));
    const cpus = (words.get("cpus") || "").split(",").map((cpu) => meta.cpus.indexOf(Number(cpu))).filter((cpu) => cpu >= 0);
    if (words.has("cpus") && cpus.length > 0) chosen = new Set(cpus);
    const [first, last] = [Number(words.get("from") ?? NaN), Number(words.get("to") ?? NaN)];
    if (first < last) show(first, last); else show(meta.start, end);
  }

  let waiting = null;
  function draw() {
    clearTimeout(waiting);
    waiting = setTimeout(remember, 300);
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; drawMap(); drawLines(); explain(); say(); });
  }

  function show(newFrom, newTo) {
    const least = Math.max(meta.width * 4, (end - meta.start) * 1e-9);
    let length = Math.min(end - meta.start, Math.max(least, newTo - newFrom));
    from = Math.max(meta.start, Math.min(newFrom, end - length));
    to = from + length;
    draw();
  }

  const timeAt = (canvas, event) => {
    const box = canvas.getBoundingClientRect();
    return from + (event.clientX - box.left - left) / Math.max(1, box.width - left - right) * (to - from);
  };

  for (const canvas of [map, lines]) {
    let drag = null;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const time = timeAt(canvas, event), factor = Math.exp(event.deltaY * 0.002);
      show(time - (time - from) * factor, time + (to - time) * factor);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      drag = { time: timeAt(canvas, event), x: event.clientX, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag !== null && Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
      if (drag !== null && drag.moved) {
        const shift = drag.time - timeAt(canvas, event);
        show(from + shift, to + shift);
      }
      pointer = { time: timeAt(canvas, event), cpu: canvas === map ? rowAt(event) : null };
      draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag !== null && !drag.moved && canvas === map) {
        const cpu = rowAt(event);
        if (cpu !== null && event.shiftKey) { if (!chosen.delete(cpu)) chosen.add(cpu); }
        else if (cpu !== null) chosen = new Set([cpu]);
      }
      drag = null;
      draw();
    });
    canvas.addEventListener("pointerleave", () => { pointer = null; draw(); });
    canvas.addEventListener("dblclick", () => show(meta.start, end));
  }

  function rowAt(event) {
    const box = map.getBoundingClientRect();
    const row = Math.max(1, Math.min(16, Math.floor(480 / meta.cpus.length)));
    const at = Math.floor((event.clientY - box.top) / row);
    return at >= 0 && at < meta.cpus.length ? at : null;
  }

  meta.metrics.forEach((about, at) => {
    const button = document.createElement("button");
    button.textContent = about.title;
    button.setAttribute("aria-pressed", String(at === metric));
    button.addEventListener("click", () => {
      metric = at;
      [...nav.children].forEach((other, place) => other.setAttribute("aria-pressed", String(place === at)));
      draw();
    });
    nav.append(button);
  });
  window.addEventListener("resize", draw);
  window.addEventListener("hashchange", recall);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  recall();
})();
