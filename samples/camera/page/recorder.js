// An AudioWorklet: collects the microphone's samples into blocks.
registerProcessor("recorder", class extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    this.block = new Float32Array(processorOptions.size);
    this.filled = 0;
  }

  process([[samples]]) {
    for (const value of samples || []) {
      this.block[this.filled] = value;
      this.filled += 1;
      if (this.filled === this.block.length) {
        this.port.postMessage(this.block.slice());
        this.filled = 0;
      }
    }
    return true;
  }
});
