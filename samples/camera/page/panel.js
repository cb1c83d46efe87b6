// The panel: switches, power, figures, alerts, and what the runtime did about it all.
import { add as addToChart, STAGES } from "./chart.js";
import { request } from "./connection.js";

const FAULTS = [
  ["network", "Pull the network", "Alerts wait; each is sent once it is back."],
  ["kill", "Kill the engine", "The next engine of the bundle takes over."],
  ["hang", "Hang the engine", "A run that never ends is given up."],
  ["load", "Load the CPU", "Other programs take the cores."],
  ["budget", "Tighten the budget", "Less time a frame than the variant needs."],
  ["update", "Install a bad update", "It does not work; the last good one stays."],
];
const find = (id) => document.getElementById(id);
const clock = (time) => new Date(time * 1000).toLocaleTimeString([], { hour12: false });

let report = () => {};
let state = null;
let flips = []; // {what, on, after: time of the newest event before it, until: as of the next flip}
let first = true;

/** Begin: `failed(message)` is told what went wrong. */
export function start(failed) {
  report = failed;
  for (const [what, title, text] of FAULTS) find("switches").append(faultRow(what, title, text));
  for (const box of document.querySelectorAll("[data-switch]")) box.addEventListener("change", () => flip(box));
  find("power").addEventListener("change", (event) => setPower(event.target.value));
  for (const name of STAGES) find("stages").append(stageRow(name));
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function faultRow(what, title, text) {
  const box = element("input", { type: "checkbox", role: "switch", "data-switch": what, "aria-describedby": `about-${what}` });
  const words = element("span", { class: "words" }, element("b", {}, title));
  const about = element("span", { class: "dim", id: `about-${what}` }, text);
  const label = element("label", { class: "switch" }, words, box);
  return element("li", {}, label, about, element("p", { class: "effect", id: `effect-${what}`, hidden: "" }));
}

function stageRow(name) {
  const key = element("span", { class: `key key-${STAGES.indexOf(name) + 1}` });
  const cells = ["p50", "p95", "p99"].map((q) => element("td", { id: `${name}-${q}` }, "–"));
  return element("tr", {}, element("th", { scope: "row" }, key, name), ...cells);
}

/** The time of the newest thing the device said it did. */
const latest = () => Math.max(0, ...[...state.events, ...state.fallbacks].map((event) => event.time));

/** Remember when it was thrown: what the device says from then on is its effect. */
function remember(what) {
  if (!state) return;
  const after = latest();
  for (const each of flips) each.until = Math.min(each.until, after);
  flips = flips.filter((each) => each.what !== what);
  flips.push({ what, after, until: Infinity });
}

async function flip(box) {
  const what = box.dataset.switch;
  const on = box.checked;
  box.dataset.busy = "yes";
  remember(what);
  try {
    await request("POST", `/api/switches/${what}`, { on });
  } catch (error) {
    box.checked = !on;
    report(error.message);
  }
  setTimeout(() => delete box.dataset.busy, 700); // the state on its way may still be the old one
}

async function setPower(mode) {
  remember("power");
  find("power").dataset.busy = "yes";
  try {
    await request("POST", "/api/power", { mode });
  } catch (error) {
    report(error.message);
  }
  setTimeout(() => delete find("power").dataset.busy, 700);
}

function say(id, text) {
  const place = typeof id === "string" ? find(id) : id;
  if (place.textContent !== text) place.textContent = text;
}

/** Show the state. */
export function update(newer) {
  state = newer;
  const { active, model, source, stages } = state;
  const rate = source.rate ? `, ${Math.round(source.rate)} a second` : "";
  say("source", `${source.name}${source.ended ? ", ended" : rate}`);
  say("fps", state.fps.toFixed(1));
  say("p95", stages.total ? `${stages.total.p95.toFixed(1)} ms` : "–");
  say("answers", active.variant);
  say("temperature", state.temperature_c === null ? "no sensor" : `${Math.round(state.temperature_c)} °C`);
  say("dropped", state.dropped.toLocaleString("en"));
  for (const name of STAGES) {
    for (const q of ["p50", "p95", "p99"]) say(`${name}-${q}`, stages[name] ? stages[name][q].toFixed(1) : "–");
  }
  addToChart(stages);
  say("variant", active.variant);
  say("engine", active.engine);
  say("precision", active.precision);
  say("device", `${active.device}, ${active.threads} ${active.threads === 1 ? "thread" : "threads"}`);
  say("model", model.name);
  say("version", model.sha256.startsWith(model.version) ? model.version : `${model.version} (${model.sha256.slice(0, 8)})`);
  updateSwitches();
  updateAlerts();
  updateEvents();
  first = false;
}

function updateSwitches() {
  for (const box of document.querySelectorAll("[data-switch]")) {
    if (!box.dataset.busy) box.checked = state.switches[box.dataset.switch];
  }
  if (!find("power").dataset.busy) {
    for (const radio of document.querySelectorAll("[name=power]")) radio.checked = radio.value === state.power;
  }
  const happened = [...state.events, ...state.fallbacks].sort((a, b) => b.time - a.time);
  for (const what of [...FAULTS.map(([each]) => each), "power"]) {
    const flipped = flips.find((each) => each.what === what);
    const since = flipped ? happened.filter(({ time }) => time > flipped.after && time <= flipped.until) : [];
    const texts = [...new Set(since.slice(0, 3).reverse().map(({ text }) => text))];
    const { queued } = state.network;
    if (what === "network" && state.switches.network) texts.unshift(`Offline: ${queued} waiting, none lost.`);
    const place = find(`effect-${what}`) || find(`${what}-effect`);
    place.hidden = !texts.length;
    say(place, texts.join("\n"));
  }
}

function updateAlerts() {
  const { queued, sent, online } = state.network;
  const way = online ? "online" : state.network.pulled ? "network pulled" : "offline";
  say("outbox", `${queued} waiting, ${sent} sent, ${way}`);
  find("no-alerts").hidden = state.alerts.length > 0;
  const list = find("alerts");
  list.hidden = !state.alerts.length;
  const rows = new Map([...list.children].map((row) => [row.dataset.id, row]));
  for (const alert of [...state.alerts].reverse()) {
    let row = rows.get(String(alert.id));
    if (!row) {
      row = alertRow(alert);
      list.prepend(row);
      const text = `Alert: ${alert.label} in ${alert.zone}`;
      if (!first) say("said", text);
    }
    rows.delete(String(alert.id));
    row.dataset.state = alert.state;
    say(row.querySelector(".pill .text"), alert.state);
    row.querySelector(".pill").dataset.kind = alert.state === "sent" ? "good" : "wait";
  }
  for (const row of rows.values()) {
    URL.revokeObjectURL(row.querySelector("img").src);
    row.remove();
  }
}

function alertRow(alert) {
  const image = element("img", { alt: `${alert.label} in ${alert.zone}`, width: "112", height: "63" });
  request("GET", alert.picture)
    .then((response) => response.blob())
    .then((blob) => { image.src = URL.createObjectURL(blob); })
    .catch(() => { image.alt = "its picture is not on the device any more"; });
  const pill = element("span", { class: "pill" }, element("span", { class: "dot" }), element("span", { class: "text" }));
  const title = element("b", {}, `${alert.label} in ${alert.zone}`);
  const when = element("span", { class: "dim" }, `for ${alert.seconds.toFixed(1)} s, at ${clock(alert.time)}`);
  return element("li", { "data-id": alert.id }, image, element("span", { class: "words" }, title, when, pill));
}

let shownEvents = "";

function updateEvents() {
  const told = new Set(state.fallbacks.map(({ time, text }) => `${time} ${text}`));
  const rows = [
    ...state.fallbacks.map((event) => ({ ...event, kind: "fallback" })),
    ...state.events.filter(({ time, text }) => !told.has(`${time} ${text}`)),
  ].sort((a, b) => b.time - a.time);
  const key = JSON.stringify(rows);
  if (key === shownEvents) return;
  shownEvents = key;
  find("no-events").hidden = rows.length > 0;
  find("events").hidden = !rows.length;
  find("events").replaceChildren(...rows.map(({ time, text, kind }) => {
    const row = element("li", {}, element("time", { class: "dim" }, clock(time)));
    const words = element("span", { class: "words" });
    if (kind) words.append(element("span", { class: "tag" }, kind), " ");
    words.append(text);
    row.append(words);
    return row;
  }));
}
