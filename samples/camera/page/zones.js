// Zones: drawn by mouse, finger or keyboard; each with a rule (a label and seconds) that the device keeps.
import { request } from "./connection.js";
import { overlays, redraw } from "./picture.js";

const DRAG = 8; // CSS px from where a press is a drag, which makes a rectangle; a shorter one puts a corner
const NEAR = 16; // CSS px around the first corner that close the shape
const HELP = "Drag for a rectangle, or tap corners and the first one again. Keys: arrows, Space, Enter; Escape leaves.";

const stage = document.getElementById("stage");
const button = document.getElementById("draw");
const seen = document.getElementById("seen");
const help = document.getElementById("drawing-help");
const form = document.getElementById("rule");
const name = document.getElementById("rule-name");
const label = document.getElementById("rule-label");
const seconds = document.getElementById("rule-seconds");
const list = document.getElementById("zones");

let zones = [];
let drawing = false;
let corners = []; // [x, y] each 0..1 of the picture
let pressed = null; // where the pointer went down
let pointer = null; // where it, or the keyboard's cross, is now
let keyed = false;
let report = () => {};

/** Begin: `failed(message)` is told what went wrong. */
export function start(failed) {
  report = failed;
  overlays(draw);
  button.addEventListener("click", () => (drawing ? leave() : enter()));
  stage.addEventListener("pointerdown", down);
  stage.addEventListener("pointermove", move);
  stage.addEventListener("pointerup", up);
  stage.addEventListener("pointercancel", () => { pressed = null; redraw(); });
  stage.addEventListener("keydown", key);
  form.addEventListener("submit", save);
  document.getElementById("rule-cancel").addEventListener("click", leave);
  form.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });
}

function enter() {
  drawing = true;
  corners = [];
  pressed = null;
  pointer = null;
  keyed = false;
  form.hidden = true;
  button.setAttribute("aria-pressed", "true");
  button.textContent = "Stop drawing";
  help.textContent = HELP;
  help.hidden = false;
  seen.hidden = true;
  stage.classList.add("drawing");
  stage.tabIndex = 0;
  stage.setAttribute("role", "application");
  stage.setAttribute("aria-label", `Draw a zone. ${HELP}`);
  stage.focus({ preventScroll: true });
  redraw();
}

function leave() {
  const inside = form.contains(document.activeElement) || document.activeElement === stage;
  stopDrawing();
  corners = [];
  form.hidden = true;
  if (inside) button.focus();
  redraw();
}

function stopDrawing() {
  drawing = false;
  pressed = null;
  pointer = null;
  button.setAttribute("aria-pressed", "false");
  button.textContent = "Draw a zone";
  help.hidden = true;
  seen.hidden = false;
  stage.classList.remove("drawing");
  stage.removeAttribute("tabindex");
  stage.removeAttribute("role");
  stage.removeAttribute("aria-label");
}

/** The shape is whole: ask for its rule. */
function close() {
  const taken = new Set(zones.map((zone) => zone.name));
  let number = 1;
  while (taken.has(`Zone ${number}`)) number++;
  stopDrawing();
  name.value = `Zone ${number}`;
  form.hidden = false;
  (matchMedia("(pointer: coarse)").matches ? form.querySelector("[type=submit]") : name).focus();
  redraw();
}

async function save(event) {
  event.preventDefault();
  const points = corners.map(([x, y]) => [Number(x.toFixed(4)), Number(y.toFixed(4))]);
  const zone = { name: name.value.trim(), points, label: label.value, seconds: Number(seconds.value) };
  try {
    await request("POST", "/api/zones", zone);
    leave();
  } catch (error) {
    report(error.message);
  }
}

const clamp = (value) => Math.min(1, Math.max(0, value));

function place(event) {
  const box = stage.getBoundingClientRect();
  return [clamp((event.clientX - box.left) / box.width), clamp((event.clientY - box.top) / box.height)];
}

/** CSS px between two places. */
function apart(a, b) {
  return Math.hypot((a[0] - b[0]) * stage.clientWidth, (a[1] - b[1]) * stage.clientHeight);
}

function down(event) {
  if (!drawing || event.button > 0) return;
  event.preventDefault();
  stage.setPointerCapture(event.pointerId);
  keyed = false;
  pressed = pointer = place(event);
}

function move(event) {
  if (!drawing) return;
  pointer = place(event);
  redraw();
}

function up(event) {
  if (!drawing || !pressed) return;
  const from = pressed;
  pressed = null;
  put(from, place(event));
}

/** A press and release: a drag is a rectangle, a tap a corner. */
function put(from, to) {
  if (!corners.length && apart(from, to) > DRAG) {
    corners = rectangle(from, to);
    close();
  } else if (corners.length >= 3 && apart(corners[0], to) < NEAR) {
    close();
  } else {
    corners.push(to);
    redraw();
  }
}

const rectangle = ([x1, y1], [x2, y2]) => [[x1, y1], [x2, y1], [x2, y2], [x1, y2]];

function key(event) {
  if (!drawing) return;
  const step = event.shiftKey ? 0.1 : 0.02;
  const way = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
  if (way) {
    const from = keyed || pointer ? pointer : [0.5, 0.5];
    pointer = [clamp(from[0] + way[0]), clamp(from[1] + way[1])];
    keyed = true;
  } else if (event.key === " ") {
    pointer = pointer || [0.5, 0.5];
    keyed = true;
    put(pointer, pointer);
  } else if (event.key === "Enter" && corners.length >= 3) {
    close();
  } else if (event.key === "Backspace") {
    corners.pop();
  } else if (event.key === "Escape") {
    leave();
  } else {
    return;
  }
  event.preventDefault();
  redraw();
}

/** Show the zones of the state. */
export function update(state) {
  zones = state.zones;
  if (label.options.length !== state.labels.length) {
    label.replaceChildren(...state.labels.map((text) => new Option(text, text)));
    if (state.labels.includes("person")) label.value = "person";
  }
  const rows = new Map([...list.children].map((row) => [row.dataset.id, row]));
  for (const zone of zones) {
    const row = rows.get(String(zone.id)) || newRow(zone);
    rows.delete(String(zone.id));
    row.classList.toggle("firing", zone.firing);
    const text = `${zone.label} for ${zone.seconds} s`;
    const inside = zone.firing ? `${zone.count} inside: alert` : `${zone.count} inside`;
    for (const [part, value] of [["b", zone.name], [".rule", text], [".inside", inside]]) {
      const shown = row.querySelector(part);
      if (shown.textContent !== value) shown.textContent = value;
    }
  }
  for (const row of rows.values()) row.remove();
  redraw();
}

function newRow(zone) {
  const row = document.createElement("li");
  row.dataset.id = zone.id;
  for (const [tag, kind] of [["b", ""], ["span", "rule"], ["span", "inside"]]) {
    const part = document.createElement(tag);
    part.className = kind;
    row.append(part, " ");
  }
  const remove = document.createElement("button");
  remove.type = "button";
  remove.className = "remove";
  remove.textContent = "Remove";
  remove.setAttribute("aria-label", `Remove ${zone.name}`);
  remove.addEventListener("click", async () => {
    remove.disabled = true;
    try {
      await request("DELETE", `/api/zones/${zone.id}`);
      button.focus();
    } catch (error) {
      remove.disabled = false;
      report(error.message);
    }
  });
  row.append(remove);
  list.append(row);
  return row;
}

function draw(context, width, height) {
  for (const zone of zones) {
    const colour = zone.firing ? "255 107 107" : "120 190 255";
    shape(context, zone.points, width, height, true);
    context.fillStyle = `rgb(${colour} / ${zone.firing ? 0.32 : 0.14})`;
    context.fill();
    context.strokeStyle = `rgb(${colour})`;
    context.lineWidth = zone.firing ? 3 : 2;
    context.setLineDash(zone.firing ? [] : [7, 5]);
    context.stroke();
    context.setLineDash([]);
    const low = zone.points.reduce((a, b) => (b[1] > a[1] || (b[1] === a[1] && b[0] < a[0]) ? b : a));
    context.font = "600 12px system-ui, sans-serif";
    context.textBaseline = "bottom";
    context.lineWidth = 3;
    context.strokeStyle = "rgb(11 15 20 / .75)";
    const at = [Math.min(low[0] * width + 6, width - context.measureText(zone.name).width - 4), low[1] * height - 5];
    context.strokeText(zone.name, ...at);
    context.fillStyle = "#ffffff";
    context.fillText(zone.name, ...at);
  }
  if (drawing || !form.hidden) drawNew(context, width, height);
}

function shape(context, points, width, height, closed) {
  context.beginPath();
  points.forEach(([x, y], index) => context[index ? "lineTo" : "moveTo"](x * width, y * height));
  if (closed) context.closePath();
}

/** The shape that is being drawn, its corners, and the keyboard's cross. */
function drawNew(context, width, height) {
  const dragged = pressed && !corners.length && apart(pressed, pointer) > DRAG;
  const points = dragged ? rectangle(pressed, pointer) : drawing && pointer ? [...corners, pointer] : corners;
  context.strokeStyle = "#ffffff";
  context.fillStyle = "rgb(255 255 255 / .18)";
  context.lineWidth = 2;
  shape(context, points, width, height, dragged || !drawing);
  context.fill();
  context.stroke();
  context.fillStyle = "#ffffff";
  for (const [x, y] of corners) {
    context.beginPath();
    context.arc(x * width, y * height, 5, 0, 7);
    context.fill();
  }
  if (!keyed || !pointer) return;
  const [x, y] = [pointer[0] * width, pointer[1] * height];
  context.beginPath();
  for (const [dx, dy] of [[10, 0], [0, 10]]) {
    context.moveTo(x - dx, y - dy);
    context.lineTo(x + dx, y + dy);
  }
  context.stroke();
}
