// Sends what a microphone hears to the page in pieces: the mean of its channels.
const PIECE_SAMPLES = 2048;

registerProcessor('microphone', class extends AudioWorkletProcessor {
  #piece = new Float32Array(PIECE_SAMPLES);
  #length = 0;

  process([channels]) {
    if (!channels.length) return true;  // nothing is connected yet
    for (let i = 0; i < channels[0].length; i++) {
      let sum = 0;
      for (const channel of channels) sum += channel[i];
      this.#piece[this.#length++] = sum / channels.length;
      if (this.#length < PIECE_SAMPLES) continue;
      this.port.postMessage(this.#piece, [this.#piece.buffer]);
      this.#piece = new Float32Array(PIECE_SAMPLES);
      this.#length = 0;
    }
    return true;
  }
});
