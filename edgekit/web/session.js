// A bundle: checked by libedgekit, run by onnxruntime-web. edgekit.js is its other end, in the page.
import {Core, EdgeKitError} from './core.js';
import {load as loadLiteRt} from './litert.js';
import {load as loadOnnxRuntime} from './onnxruntime.js';
import {LIMIT_BYTES as SIGNATURE_LIMIT_BYTES, checkSignature} from './signature.js';

const ENGINES = new Map([['ort', loadOnnxRuntime], ['tflite', loadLiteRt]]);
const BUNDLE_LIMIT_BYTES = 512 * 2 ** 20, PIXEL_LIMIT = 2 ** 26;
const SLICES = 10, RUNS_LIMIT = 2_000_000;
let compiled;

class LocalSession {
  #core;
  #manifest;
  #engine = null;
  #queue = Promise.resolve();
  #onprogress = () => {};
  #providers;
  #files;  // name -> URL of the files that are loaded by name
  #next = 0;  // index of the provider to try next with the variant that runs
  #left = [];  // providers that were left for another one of the same variant
  #facts = {};
  #hears = false;  // a sound has begun
  #loadMs = 0;
  #firstMs = 0;

  // Open a bundle, check it and choose a variant: the first one that loads and whose golden vectors are right.
  async open(source, {variant, strict, providers, keys, signature, files}, onprogress) {
    const {bytes, name} = await bytesOf(source);
    if (keys) {
      const file = await bytesOf(signature, SIGNATURE_LIMIT_BYTES, 'the signature');
      await checkSignature(bytes, keys, file.bytes, file.name);
    }
    this.#onprogress = onprogress;
    this.#providers = providers;
    this.#files = files;
    this.#core = await Core.open(await coreModule(files['edgekit.wasm']), bytes, name);
    this.#core.verify();
    this.#manifest = this.#core.manifest();
    this.#facts = {manifest: this.#manifest, digest: this.#core.digest, core: `libedgekit ${this.#core.version}`};
    onprogress({step: 'checked'});
    this.#core.choose(variant, strict);
    await this.#loadNext();
    this.#onprogress = () => {};
  }

  // Return what has changed since the last time, of the session's public fields.
  state() {
    const changed = this.#facts;
    this.#facts = {};
    return changed;
  }

  // Run the model on tensors {name, dtype, shape, data}, all of its inputs in its order.
  run(tensors) { return this.#alone(() => this.#run(tensors)); }

  // Prepare a picture, run and decode: {kind, items, width, height, times_ms: {read, prepare, run, decode}}.
  predict(picture) {
    return this.#alone(async () => {
      const asked = performance.now();
      const pixels = await pixelsOf(picture), began = performance.now();
      const {inputs, placement} = this.#core.prepare(pixels);
      const prepared = performance.now();
      const outputs = await this.#run(inputs);
      const ran = performance.now();
      this.#carry(outputs);
      const prediction = this.#core.decode(outputs, placement);
      const ended = performance.now();
      const times_ms = {read: began - asked, prepare: prepared - began, run: ran - prepared, decode: ended - ran};
      return {...prediction, width: pixels.width, height: pixels.height, times_ms};
    });
  }

  // Take samples of a live sound, one channel at a rate in Hz, and predict the windows that they complete:
  // [{start_s, end_s, kind, items, times_ms}]. begin: these are the first samples of another sound.
  listen(samples, rate, begin) {
    return this.#alone(async () => {
      const predictions = [];
      let began = performance.now();
      let window = this.#core.hear(samples, rate, begin || !this.#hears);
      this.#hears = true;
      while (window) {
        const {inputs, start_s, end_s} = window, prepared = performance.now();
        const outputs = await this.#run(inputs);
        const ran = performance.now();
        this.#carry(outputs);
        const prediction = this.#core.decode(outputs), now = performance.now();
        const times_ms = {read: 0, prepare: prepared - began, run: ran - prepared, decode: now - ran};
        predictions.push({...prediction, start_s, end_s, times_ms});
        began = now;
        window = this.#core.nextWindow();
      }
      return predictions;
    });
  }

  // Run the first golden vector's inputs for some seconds: percentiles of a run, and the median of each tenth.
  bench(seconds, onprogress) {
    return this.#alone(async () => {
      if (!this.#manifest.golden.length) throw new EdgeKitError('the bundle has no golden vector to run');
      this.#core.candidate();
      if (!this.#engine) await this.#loadNext();
      const inputs = this.#core.goldenInputs(0, this.#manifest.inputs.length), slices = [], all = [];
      const began = performance.now();
      let now = began;
      for (let slice = 1; slice <= SLICES; slice++) {
        const times = [];
        do {
          const outputs = await this.#engine.run(inputs), after = performance.now();
          if (!times.length) this.#core.checkOutputs(outputs);
          if (all.length < RUNS_LIMIT) all.push(after - now);
          times.push(after - now);
          now = performance.now();
        } while (now - began < seconds * 1000 * slice / SLICES);
        slices.push(percentile(times, 0.5));
        onprogress({step: 'measured', seconds: (now - began) / 1000, p50_ms: slices[slices.length - 1]});
      }
      const [p50_ms, p95_ms, p99_ms] = [0.5, 0.95, 0.99].map((part) => percentile(all, part));
      return {
        seconds: (now - began) / 1000, runs: all.length, load_ms: this.#loadMs, first_ms: this.#firstMs,
        p50_ms, p95_ms, p99_ms, slices_ms: slices,
      };
    });
  }

  close() {
    return this.#alone(() => this.#unload());
  }

  #carry(outputs) {
    if (this.#manifest.card.states) this.#core.carry(outputs);
  }

  // One call after the other: the engine runs one at a time.
  #alone(work) {
    const result = this.#queue.then(work);
    this.#queue = result.catch(() => {});
    return result;
  }

  async #run(tensors) {
    for (;;) {
      this.#core.candidate();  // all may have failed at an earlier run
      if (!this.#engine) await this.#loadNext();
      try {
        const outputs = await this.#engine.run(tensors);
        this.#core.checkOutputs(outputs);
        return outputs;
      } catch (problem) {
        await (this.#next < this.#providers.length ? this.#leaveProvider(problem) : this.#leave(problem));
        await this.#loadNext();
      }
    }
  }

  async #loadNext() {
    for (;;) {
      const variant = this.#manifest.variants[this.#core.candidate()];
      try {
        await this.#load(variant);
        break;
      } catch (problem) {
        await this.#leave(problem);
      }
    }
    this.#facts.fallbacks = [...this.#core.settle(), ...this.#left];
  }

  // Load a variant on the first provider whose outputs are right, as another engine would be.
  async #load(variant) {
    const load = ENGINES.get(variant.target);
    if (!load) throw new EdgeKitError(`no engine for target ${variant.target} in a page`);
    for (;;) {
      const provider = this.#providers[this.#next++];
      try {
        await this.#loadOn(variant, load, provider);
        return;
      } catch (problem) {
        if (this.#next >= this.#providers.length) throw problem;
        await this.#leaveProvider(problem);
      }
    }
  }

  async #loadOn(variant, load, provider) {
    const {inputs, outputs, golden} = this.#manifest;
    this.#onprogress({step: 'loading', variant: variant.name, provider});
    const agreement = [], began = performance.now();
    this.#engine = await load(this.#core, variant, outputs, provider, this.#files);
    this.#loadMs = performance.now() - began;
    for (let i = 0; i < golden.length; i++) {
      const vector = this.#core.goldenInputs(i, inputs.length), asked = performance.now();
      const made = await this.#engine.run(vector);
      if (i === 0) this.#firstMs = performance.now() - asked;
      const {found, refused} = this.#core.checkGolden(i, made);
      const rows = found.map((one, k) => ({golden: i, output: outputs[k].name, ...one}));
      agreement.push(...rows);
      this.#onprogress({step: 'golden', variant: variant.name, provider, rows, refused});
      if (refused) throw new EdgeKitError(refused);
    }
    Object.assign(this.#facts, {golden: agreement, variant: variant.name, engine: this.#engine.name});
  }

  // Leave a provider for the next one of the same variant.
  async #leaveProvider(problem) {
    await this.#unload();
    if (!(problem instanceof EdgeKitError)) throw problem;
    const {name} = this.#manifest.variants[this.#core.candidate()];
    const [from, to] = [this.#next - 1, this.#next].map((i) => `${name} on ${this.#providers[i]}`);
    this.#left.push({from, to, reason: problem.message});
    this.#onprogress({step: 'left', variant: from, reason: problem.message});
  }

  // Leave the variant that runs. An error that is not its own, e.g. of the page, is not hidden.
  async #leave(problem) {
    await this.#unload();
    if (!(problem instanceof EdgeKitError)) throw problem;
    this.#onprogress({step: 'left', variant: this.#manifest.variants[this.#core.candidate()].name, reason: problem.message});
    this.#next = 0;
    this.#left = [];
    this.#core.fail(problem.message);
  }

  async #unload() {
    const engine = this.#engine;
    this.#engine = null;
    await engine?.close();
  }
}

// Return the function that answers the calls of one session: their progress, result and the session's state.
export function answering(send) {
  const session = new LocalSession();
  return async ({id, name, values}) => {
    const onprogress = (progress) => send({id, progress, state: session.state()});
    try {
      const value = await session[name](...values, onprogress);
      send({id, value, state: session.state()});
    } catch (problem) {
      const kind = problem instanceof EdgeKitError ? 'refused' : 'failed';
      send({id, [kind]: String(problem?.message ?? problem), state: session.state()});
    }
  };
}

async function coreModule(url) {
  compiled ??= fetch(url).then(async (response) => {
    if (!response.ok) throw new EdgeKitError(`edgekit.wasm: the server answered ${response.status}`);
    return WebAssembly.compile(await response.arrayBuffer());  // whatever type the host gives it
  });
  return compiled;
}

// Return the bytes of a URL, a Blob or an ArrayBuffer, within the limit.
async function bytesOf(source, limit = BUNDLE_LIMIT_BYTES, what = 'the bundle') {
  const within = (length) => {
    if (length > limit) throw new EdgeKitError(`${what} has more than ${limit} bytes, which a page opens`);
  };
  if (source instanceof ArrayBuffer) {
    within(source.byteLength);
    return {bytes: new Uint8Array(source), name: what};
  }
  if (source instanceof Blob) {
    within(source.size);
    return {bytes: new Uint8Array(await source.arrayBuffer()), name: source.name ?? what};
  }
  const response = await fetch(source), pieces = [];
  if (!response.ok) throw new EdgeKitError(`${source}: the server answered ${response.status}`);
  let length = 0;
  for (const reader = response.body.getReader(); ;) {
    const {done, value} = await reader.read();
    if (done) break;
    pieces.push(value);
    length += value.length;
    if (length > limit) await reader.cancel();
    within(length);
  }
  return {bytes: new Uint8Array(await new Blob(pieces).arrayBuffer()), name: String(source).split(/[?#]/)[0].split('/').pop()};
}

// Return RGBA pixels {data, width, height} of an ImageData, a Blob or an ImageBitmap, which is closed.
async function pixelsOf(picture) {
  if (picture instanceof ImageData) return picture;
  const bitmap = picture instanceof ImageBitmap ? picture : await createImageBitmap(picture, {colorSpaceConversion: 'none'}).catch((problem) => {
    throw new EdgeKitError(`the browser cannot read this picture: ${problem.message}`);
  });
  const {width, height} = bitmap;
  try {
    if (width * height > PIXEL_LIMIT) {
      throw new EdgeKitError(`a picture of ${width}x${height} pixels; the limit is ${PIXEL_LIMIT}`);
    }
    const canvas = new OffscreenCanvas(width, height), context = canvas.getContext('2d', {willReadFrequently: true});
    context.drawImage(bitmap, 0, 0);
    return context.getImageData(0, 0, width, height);
  } finally {
    bitmap.close();
  }
}

function percentile(times, part) {
  const sorted = Float64Array.from(times).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
}
