// The camera's page: frames come on one WebSocket, the device's state on another; what is asked goes by POST.
import { listen, request } from "./connection.js";
import * as panel from "./panel.js";
import { show } from "./picture.js";
import * as zones from "./zones.js";

const toast = document.getElementById("toast");
const veil = document.getElementById("veil");
const link = document.getElementById("link");
const open = { events: false, frames: false };
let state = null;
let refused = false; // the device wants a token that this page does not have
let wasOpen = false;
let hiding;

function report(message) {
  toast.textContent = message;
  toast.classList.add("shown");
  clearTimeout(hiding);
  hiding = setTimeout(() => toast.classList.remove("shown"), 8000);
}

/** Say how the page and the device stand, in words and not by colour alone. */
function tell() {
  const both = open.events && open.frames;
  wasOpen = wasOpen || both;
  let [kind, text] = ["good", state && !state.source.live ? "live, from a recording" : "live"];
  if (!both) [kind, text] = ["bad", wasOpen ? "device lost, reconnecting" : "connecting to the device"];
  else if (state && state.source.ended) [kind, text] = ["wait", "the source has ended"];
  else if (state && !state.network.online) [kind, text] = ["wait", "live, device offline"];
  if (refused) text = "a token is needed";
  link.dataset.kind = kind;
  const words = link.querySelector(".text");
  if (words.textContent !== text) words.textContent = text;
  veil.hidden = both;
  if (both) return;
  const title = refused ? "This device asks for a token" : wasOpen ? "The page lost the device; reconnecting" : "Connecting to the device";
  const more = refused ? "Open the address that it printed when it started; it ends with #token=…" : wasOpen ? "The device may go on without its page." : "";
  const [first, second] = veil.children;
  if (first.textContent !== title) first.textContent = title;
  if (second.textContent !== more) second.textContent = more;
}

/** Whether the token is what keeps the page out. */
async function ask() {
  try {
    await request("GET", "/api/state");
    refused = false;
  } catch (error) {
    refused = error.status === 401 || error.status === 403;
  }
  tell();
}

function changed(name) {
  return (now) => {
    if (open[name] === now && now) return;
    open[name] = now;
    if (!now) ask();
    tell();
  };
}

panel.start(report);
zones.start(report);
tell();
listen("/events", (data) => {
  state = JSON.parse(data);
  panel.update(state);
  zones.update(state);
  document.getElementById("speech").hidden = !state.speech;
  tell();
}, changed("events"));
// A source may be still: the silence of the frames alone is no loss.
listen("/frames", show, changed("frames"), 0);
