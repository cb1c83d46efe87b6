// Speech: the microphone, or a recording, goes to the device in blocks; text comes back while it is spoken.
import { token } from "./connection.js";

const RATE = 16000;
const BLOCK = 1600; // samples of a message: a tenth of a second
const AHEAD = 20; // blocks of a recording that are on their way

const at = (id) => document.getElementById(id);
const button = at("microphone");
let stop = null; // ends what runs

function tell(kind, text) {
  at("link").dataset.kind = kind;
  at("link").querySelector(".text").textContent = text;
}

/** A socket to the device. send(block) resolves once not too many blocks wait for their reply. */
function connect() {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/sound`);
    let waiting = 0, sent = 0, wake = null, closed = false;
    const send = async (data) => {
      while (waiting >= AHEAD) await new Promise((done) => { wake = done; });
      if (socket.readyState !== WebSocket.OPEN) return;
      waiting += 1;
      if (data.length) sent += data.length / RATE;
      at("heard").textContent = `${sent.toFixed(1)} s`;
      socket.send(data);
    };
    const idle = async () => { while (waiting) await new Promise((done) => { wake = done; }); };
    socket.onopen = () => {
      if (token) socket.send(JSON.stringify({ token }));
      resolve({ send, idle, close: () => { closed = true; socket.close(); }, end: () => send("end") });
    };
    socket.onmessage = (message) => {
      waiting -= 1;
      show(JSON.parse(message.data));
      if (wake) wake();
    };
    socket.onclose = () => {
      waiting = 0;
      if (wake) wake();
      const reason = "The device took no sound: it has no speech model (watch.py --speech), or is busy with two other sounds.";
      reject(new Error(reason));
      if (stop && !closed) stop(reason);
    };
  });
}

function show({ updates, variant, error }) {
  at("variant").textContent = variant;
  at("problem").textContent = error;
  for (const update of updates) {
    const begins = /^$|\n$/.test(at("final").textContent);
    at("final").append(begins ? update.text.trimStart() : update.text);
    at("provisional").textContent = begins && !update.text ? update.provisional.trimStart() : update.provisional;
    if (update.is_end) at("final").append("\n");
  }
}

/** Samples from -1 to 1 as int16. */
const integers = (samples) => Int16Array.from(samples, (value) => Math.max(-32768, Math.min(32767, Math.round(value * 32768))));

async function listenToMicrophone() {
  if (!navigator.mediaDevices) throw new Error("This browser gives no microphone here: open the page on the device itself, or by https. Recordings work.");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true } });
  const context = new AudioContext({ sampleRate: RATE });
  await context.audioWorklet.addModule("/page/recorder.js");
  const device = await connect();
  const recorder = new AudioWorkletNode(context, "recorder", { processorOptions: { size: BLOCK } });
  recorder.port.onmessage = (message) => device.send(integers(message.data));
  context.createMediaStreamSource(stream).connect(recorder);
  tell("good", "listening");
  button.textContent = "Stop the microphone";
  button.setAttribute("aria-pressed", "true");
  stop = async (reason) => {
    stop = null;
    for (const track of stream.getTracks()) track.stop();
    await context.close();
    await device.end();
    await device.idle();
    device.close();
    at("problem").textContent = reason || "";
    tell("wait", "ready");
    button.textContent = "Start the microphone";
    button.setAttribute("aria-pressed", "false");
  };
}

async function readFile(file) {
  const device = await connect();
  let over = false;
  stop = (reason) => {
    over = true;
    at("problem").textContent = reason || "";
  };
  tell("good", "reading the recording");
  const context = new OfflineAudioContext(1, 1, RATE); // decodes to this rate
  const sound = await context.decodeAudioData(await file.arrayBuffer());
  const samples = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel += 1) {
    sound.getChannelData(channel).forEach((value, index) => { samples[index] += value / sound.numberOfChannels; });
  }
  for (let start = 0; start < samples.length && !over; start += BLOCK) await device.send(integers(samples.subarray(start, start + BLOCK)));
  await device.end();
  await device.idle();
  stop = null;
  device.close();
  tell("wait", "ready");
}

async function guarded(work) {
  at("problem").textContent = "";
  try {
    await work();
  } catch (error) {
    stop = null;
    at("problem").textContent = error.message;
    tell("bad", "no sound");
  }
}

button.addEventListener("click", () => (stop ? stop() : guarded(listenToMicrophone)));
at("file").addEventListener("change", () => {
  const [file] = at("file").files;
  if (file && !stop) guarded(() => readFile(file));
});
