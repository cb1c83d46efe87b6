// The newest frame on one canvas; boxes, tracks, ids and zones on another above it, at the screen's own resolution.

const COLOURS = ["#5cd0ff", "#ffd166", "#8ce99a", "#ff9eb5", "#cbb2ff", "#ffb877", "#7fe3d4", "#e8e36b"];
const TRAIL = 2; // s of its way that a track shows
const INK = "#0b0f14";

const stage = document.getElementById("stage");
const picture = document.getElementById("picture");
const overlay = document.getElementById("overlay");
const seen = document.getElementById("seen");
const trails = new Map(); // id -> [{x, y, time}], in shares of the frame
const extra = []; // functions that draw more, e.g. zones: (context, width, height)
let newest = { boxes: [], width: 640, height: 272, time: 0 };
let asked = false;
let counts = "";

/** Let a function draw over each picture: (context, width in CSS px, height in CSS px). */
export function overlays(drawer) { extra.push(drawer); }

/** Show a message of /frames, then ask for the next one. */
export async function show(message, send) {
  const size = new DataView(message).getUint32(0, true);
  const frame = JSON.parse(new TextDecoder().decode(new Uint8Array(message, 4, size)));
  const bitmap = await createImageBitmap(new Blob([new Uint8Array(message, 4 + size)], { type: "image/jpeg" }));
  requestAnimationFrame(() => {
    if (picture.width !== frame.width || picture.height !== frame.height) {
      picture.width = frame.width;
      picture.height = frame.height;
      stage.style.aspectRatio = `${frame.width} / ${frame.height}`;
    }
    picture.getContext("2d").drawImage(bitmap, 0, 0, frame.width, frame.height);
    bitmap.close();
    follow(frame);
    newest = frame;
    draw();
    tell(frame);
    send("next");
  });
}

/** Lengthen the trails by this frame's boxes; one that jumped, as at a cut, starts again. */
function follow(frame) {
  if (frame.time < newest.time) trails.clear();
  for (const { id, box } of frame.boxes) {
    if (id === null) continue;
    const x = (box[0] + box[2]) / 2 / frame.width;
    const y = (box[1] + box[3]) / 2 / frame.height;
    const way = trails.get(id) || [];
    const last = way.at(-1);
    if (last && Math.hypot(last.x - x, last.y - y) > 0.2) way.length = 0;
    way.push({ x, y, time: frame.time });
    while (way[0].time < frame.time - TRAIL) way.shift();
    trails.set(id, way);
  }
  for (const [id, way] of trails) if (way.at(-1).time < frame.time - 1) trails.delete(id);
}

/** What is in the picture, in words; the same for who can't see it. */
function tell(frame) {
  const found = {};
  for (const { label } of frame.boxes) found[label] = (found[label] || 0) + 1;
  const words = Object.entries(found).sort().map(([label, count]) => (count > 1 ? `${label} × ${count}` : label)).join(", ");
  stage.dataset.frame = frame.frame;
  stage.dataset.shown = Number(stage.dataset.shown || 0) + 1;
  stage.dataset.boxes = frame.boxes.length;
  stage.dataset.ids = frame.boxes.filter((box) => box.id !== null).map((box) => box.id).join(" ");
  if (words === counts) return;
  counts = words;
  seen.textContent = words ? `In the picture: ${words}` : "Nothing in the picture";
}

/** Draw the overlay with the next picture of the screen. */
export function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function draw() {
  const ratio = devicePixelRatio || 1;
  const width = stage.clientWidth;
  const height = stage.clientHeight;
  if (overlay.width !== Math.round(width * ratio) || overlay.height !== Math.round(height * ratio)) {
    overlay.width = Math.round(width * ratio);
    overlay.height = Math.round(height * ratio);
  }
  const context = overlay.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  for (const drawer of extra) drawer(context, width, height);
  for (const [id, way] of trails) drawTrail(context, way, colourOf(id), width, height);
  const scale = { x: width / newest.width, y: height / newest.height };
  for (const found of newest.boxes) drawBox(context, found, scale, width);
}

const colourOf = (id) => COLOURS[Math.abs(id) % COLOURS.length];

function drawTrail(context, way, colour, width, height) {
  context.strokeStyle = colour;
  context.lineWidth = 3;
  context.lineCap = "round";
  for (let index = 1; index < way.length; index++) {
    context.globalAlpha = (index / way.length) * 0.85;
    context.beginPath();
    context.moveTo(way[index - 1].x * width, way[index - 1].y * height);
    context.lineTo(way[index].x * width, way[index].y * height);
    context.stroke();
  }
  context.globalAlpha = 1;
}

function drawBox(context, { id, label, score, box }, scale, width) {
  const colour = id === null ? "#dfe5ec" : colourOf(id);
  const [x1, y1, x2, y2] = [box[0] * scale.x, box[1] * scale.y, box[2] * scale.x, box[3] * scale.y];
  context.lineWidth = 4;
  context.strokeStyle = "rgb(11 15 20 / .45)"; // an edge that is seen on light pictures too
  context.beginPath();
  context.roundRect(x1, y1, x2 - x1, y2 - y1, 4);
  context.stroke();
  context.lineWidth = 2;
  context.strokeStyle = colour;
  context.stroke();
  const text = `${label}${id === null ? "" : ` ${id}`}`;
  const percent = ` ${Math.round(score * 100)}%`;
  drawTag(context, text, percent, x1, y1, colour, width);
}

/** A tag above the box, or inside it where there is no room above. */
function drawTag(context, text, rest, x, y, colour, width) {
  context.font = "600 12px system-ui, sans-serif";
  const first = context.measureText(text).width;
  const wide = first + context.measureText(rest).width + 10;
  const left = Math.max(0, Math.min(x - 1, width - wide));
  const up = y >= 19 ? y - 19 : y + 1;
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(left, up, wide, 18, 4);
  context.fill();
  context.fillStyle = INK;
  context.textBaseline = "middle";
  context.fillText(text, left + 5, up + 9.5);
  context.globalAlpha = 0.72;
  context.fillText(rest, left + 5 + first, up + 9.5);
  context.globalAlpha = 1;
}

new ResizeObserver(redraw).observe(stage);
