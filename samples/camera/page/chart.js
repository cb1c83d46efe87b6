// The live chart: p95 of each stage over the last minute, one line a stage.

const MINUTE = 60; // s shown
export const STAGES = ["total", "infer", "prepare", "decode", "track"];

const canvas = document.getElementById("chart");
const top = document.getElementById("chart-top");
const points = []; // {time: s of this page's clock, stages: {name: p95 in ms}}

/** Add the state's figures; at most one point each half second. */
export function add(stages) {
  const time = performance.now() / 1000;
  if (points.length && time - points.at(-1).time < 0.45) return;
  points.push({ time, stages: Object.fromEntries(Object.entries(stages).map(([name, q]) => [name, q.p95])) });
  while (points[0].time < time - MINUTE - 2) points.shift();
  draw();
}

/** 1, 2 or 5 times a power of ten that is above the value: a scale that stays calm. */
function above(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

export function draw() {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !points.length) return;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const style = getComputedStyle(document.documentElement);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const most = above(Math.max(...points.flatMap((point) => Object.values(point.stages).filter(Number.isFinite)), 1));
  const now = points.at(-1).time;
  const x = (time) => width - 4 - ((now - time) / MINUTE) * (width - 8);
  const y = (value) => height - 2 - (value / most) * (height - 6);
  context.strokeStyle = style.getPropertyValue("--line");
  context.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(y(most * share)) + 0.5;
    context.beginPath();
    context.moveTo(0, at);
    context.lineTo(width, at);
    context.stroke();
  }
  STAGES.forEach((name, index) => {
    context.strokeStyle = style.getPropertyValue(`--series-${index + 1}`);
    context.lineWidth = name === "total" ? 2.5 : 1.5;
    context.lineJoin = "round";
    context.beginPath();
    let pen = false;
    for (const { time, stages } of points) {
      if (!Number.isFinite(stages[name])) { pen = false; continue; }
      context[pen ? "lineTo" : "moveTo"](x(time), y(stages[name]));
      pen = true;
    }
    context.stroke();
    const last = points.at(-1).stages[name];
    if (!Number.isFinite(last)) return;
    context.fillStyle = context.strokeStyle;
    context.beginPath();
    context.arc(x(now), y(last), name === "total" ? 3.5 : 2.5, 0, 7);
    context.fill();
  });
  top.textContent = `0 to ${most} ms`;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", draw);
