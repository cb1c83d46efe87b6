// A microphone's live sound. Windows are predicted in order; sound that a slow device is behind with is dropped.
import {EdgeKitError} from './core.js';
import {openMedia, refusal} from './media.js';

const BEHIND_LIMIT_S = 5;

export class Microphone {
  #stream = null;
  #context = null;
  #onend;
  #pieces = [];
  #samples = 0;  // in the pieces that wait
  #dropped = 0;
  #isGap = true;  // the next piece does not follow the one before
  #arrived = () => {};

  // Ask for a microphone. Rejects with EdgeKitError. onend(problem): it has stopped by itself, or a prediction failed.
  static async open(onend) {
    const microphone = new Microphone();
    microphone.#onend = onend;
    const plain = {echoCancellation: false, noiseSuppression: false, autoGainControl: false};  // as in a model's training
    microphone.#stream = await openMedia('microphone', {audio: plain, video: false}, (problem) => microphone.#fail(problem));
    try {
      microphone.#context = new AudioContext();
      await microphone.#context.audioWorklet.addModule(new URL('microphone-worklet.js', import.meta.url));
      const node = new AudioWorkletNode(microphone.#context, 'microphone');
      node.port.onmessage = ({data}) => microphone.#hear(data);
      microphone.#context.createMediaStreamSource(microphone.#stream).connect(node);
      node.connect(microphone.#context.destination);  // silence, so that the browser computes it
      await microphone.#context.resume();
    } catch (problem) {
      microphone.stop();
      throw refusal('microphone', problem);
    }
    return microphone;
  }

  get running() { return this.#stream !== null; }

  // Predict until stop: predict(samples, rate, begin) -> windows; onresult(windows, {dropped_s}).
  async run(predict, onresult) {
    const rate = this.#context.sampleRate;
    while (this.running) {
      if (!this.#pieces.length) await new Promise((done) => { this.#arrived = done; });
      if (!this.running) return;
      const samples = joined(this.#pieces, this.#samples), begin = this.#isGap;
      this.#pieces = [];
      this.#samples = 0;
      this.#isGap = false;
      try {
        const windows = await predict(samples, rate, begin);
        if (this.running) onresult(windows, {dropped_s: this.#dropped / rate});
      } catch (problem) {
        this.#fail(problem);
      }
    }
  }

  // End the microphone's tracks: its light goes out.
  stop() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    this.#context?.close();
    this.#context = null;
    this.#arrived();
  }

  #hear(piece) {
    if (!this.running) return;
    this.#pieces.push(piece);
    this.#samples += piece.length;
    while (this.#samples > BEHIND_LIMIT_S * this.#context.sampleRate) {
      const {length} = this.#pieces.shift();
      this.#samples -= length;
      this.#dropped += length;
      this.#isGap = true;
    }
    this.#arrived();
  }

  #fail(problem) {
    if (!this.running) return;
    this.stop();
    this.#onend(problem instanceof EdgeKitError ? problem : new EdgeKitError(`the sound was not predicted: ${problem.message}`));
  }
}

function joined(pieces, length) {
  const samples = new Float32Array(length);
  let at = 0;
  for (const piece of pieces) {
    samples.set(piece, at);
    at += piece.length;
  }
  return samples;
}
