"use strict";
// Draws the Gantt charts. All charts of one workload share a view, so that policies can be compared.
const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7"];
const colour = (job) => PALETTE[job] || `hsl(${(job * 137.5) % 360} 55% 55%)`;
const TURN = 18, MOVE = 7, WAIT = 12, GAP = 10, LEFT = 110, AXIS = 22;
const tip = document.getElementById("tip");
const views = {};

for (const chip of document.querySelectorAll(".chip")) chip.style.setProperty("--chip", colour(+chip.dataset.job));

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rowHeight = (row) => TURN + MOVE * row.moves.length + (row.waiting.length ? WAIT : 0) + GAP;

function clock(us, step) {
  const s = us / 1e6;
  if (step < 1e6) return s.toFixed(Math.min(6, Math.ceil(-Math.log10(step / 1e6)))) + " s";
  const whole = Math.round(Math.abs(s)), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, r = whole % 60;
  const two = (n) => String(n).padStart(2, "0");
  return (s < 0 ? "-" : "") + (h ? `${h}:${two(m)}:${two(r)}` : `${m}:${two(r)}`);
}

function tickStep(span, room) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const least = span / Math.max(1, room / 90);
  for (const step of steps) if (step * 1e6 >= least) return step * 1e6;
  const power = 10 ** Math.ceil(Math.log10(least));
  return Math.max(least, power);
}

function makeChart(canvas) {
  const data = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
  const section = canvas.dataset.section;
  const view = (views[section] ||= { from: Infinity, to: -Infinity, first: Infinity, last: -Infinity, charts: [] });
  view.first = view.from = Math.min(view.first, data.start);
  view.last = view.to = Math.max(view.last, data.end, data.start + 1);
  const height = AXIS + data.rows.reduce((sum, row) => sum + rowHeight(row), 0);
  let boxes = [];

  function draw() {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.style.height = height + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    const scale = (width - LEFT) / (view.to - view.from);
    const x = (us) => LEFT + (us - view.from) * scale;
    boxes = [];

    pen.strokeStyle = style("--line");
    pen.fillStyle = style("--soft");
    const step = tickStep(view.to - view.from, width - LEFT);
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      pen.beginPath();
      pen.moveTo(x(t), AXIS - 4);
      pen.lineTo(x(t), height);
      pen.stroke();
      pen.fillText(clock(t - view.first, step), Math.min(x(t) + 3, width - 50), 13);
    }

    function bars(spans, y, tall, alpha, row) {
      pen.globalAlpha = alpha;
      let edge = -1;
      for (const span of spans) {
        if (span[1] < view.from || span[0] > view.to) continue;
        const a = Math.max(LEFT, x(span[0])), b = Math.min(width, Math.max(x(span[1]), x(span[0]) + 1));
        if (b - a <= 1 && b - edge < 0.5) continue;
        edge = b;
        pen.fillStyle = colour(span[2]);
        pen.fillRect(a, y, Math.max(1, b - a), tall);
        if (span[4]) {
          pen.fillStyle = style("--ink");
          pen.fillRect(b - 2, y, 2, tall);
        }
        boxes.push([a, b, y, y + tall, span, row]);
      }
      pen.globalAlpha = 1;
    }

    let y = AXIS;
    for (const row of data.rows) {
      bars(row.turns, y, TURN, 1, row);
      row.moves.forEach((lane, n) => bars(lane, y + TURN + n * MOVE, MOVE - 1, 0.5, row));
      const base = y + rowHeight(row) - GAP;
      const most = row.waiting.reduce((top, point) => Math.max(top, point[1]), 1);
      pen.fillStyle = style("--wait");
      row.waiting.forEach((point, n) => {
        const end = n + 1 < row.waiting.length ? row.waiting[n + 1][0] : point[0];
        if (!point[1] || end < view.from || point[0] > view.to) return;
        const a = Math.max(LEFT, x(point[0])), tall = (WAIT - 2) * point[1] / most;
        pen.fillRect(a, base - tall, Math.max(0, Math.min(width, x(end)) - a), tall);
      });
      pen.fillStyle = style("--paper");
      pen.fillRect(0, y, LEFT - 2, rowHeight(row));
      pen.fillStyle = style("--ink");
      pen.fillText(row.group, 6, y + 13, LEFT - 12);
      y += rowHeight(row);
    }
  }

  const redraw = () => view.charts.forEach((each) => each());
  view.charts.push(draw);

  function zoom(factor, centre) {
    const span = Math.min(view.last - view.first, Math.max(1000, (view.to - view.from) * factor));
    const share = (centre - view.from) / (view.to - view.from);
    view.from = Math.max(view.first, Math.min(view.last - span, centre - share * span));
    view.to = view.from + span;
    redraw();
  }
  function move(us) {
    const span = view.to - view.from;
    view.from = Math.max(view.first, Math.min(view.last - span, view.from + us));
    view.to = view.from + span;
    redraw();
  }
  function all() {
    view.from = view.first;
    view.to = view.last;
    redraw();
  }
  const perPixel = () => (view.to - view.from) / (canvas.clientWidth - LEFT);

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX * perPixel());
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, view.from + Math.max(0, event.offsetX - LEFT) * perPixel());
  }, { passive: false });
  canvas.addEventListener("dblclick", all);
  canvas.addEventListener("keydown", (event) => {
    const middle = (view.from + view.to) / 2, stride = (view.to - view.from) / 5;
    const act = { "+": () => zoom(0.6, middle), "-": () => zoom(1.6, middle), "0": all,
      ArrowLeft: () => move(-stride), ArrowRight: () => move(stride) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  let dragged = null;
  canvas.addEventListener("pointerdown", (event) => { dragged = event.clientX; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged !== null) {
      move((dragged - event.clientX) * perPixel());
      dragged = event.clientX;
      tip.hidden = true;
      return;
    }
    const hit = boxes.find((box) => event.offsetX >= box[0] - 1 && event.offsetX <= box[1] + 1 &&
      event.offsetY >= box[2] && event.offsetY <= box[3]);
    tip.hidden = !hit;
    if (!hit) return;
    const [start, end, job, what, note] = hit[4], length = (end - start) / 1e6;
    const lines = [data.jobs[job] + (what ? ` · ${what}` : "") + ` on ${hit[5].group}`,
      `from ${((start - view.first) / 1e6).toFixed(3)} s for ${length.toFixed(3)} s`];
    if (note) lines.push(note);
    tip.textContent = lines.join("\n");
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = event.clientY + 14 + "px";
  });
}

document.querySelectorAll("canvas[data-chart]").forEach(makeChart);
const redrawAll = () => Object.values(views).forEach((view) => view.charts.forEach((draw) => draw()));
redrawAll();
window.addEventListener("resize", redrawAll);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
