// A bundle in a page: checked by libedgekit, run by onnxruntime-web. edgekit.d.ts has the types.
//
//   import {Session} from './edgekit.js';
//   const session = await Session.open('model.edgekit');
//   const {items} = await session.predict(document.querySelector('img'));
import {Core, EdgeKitError, arrayOf} from './core.js';
import {load as loadOnnxRuntime} from './onnxruntime.js';

export {EdgeKitError};

const ENGINES = {ort: loadOnnxRuntime};
const BUNDLE_LIMIT_BYTES = 512 * 2 ** 20, PIXEL_LIMIT = 2 ** 26;
let compiled;

export class Session {
  #core;
  #manifest;
  #engine = null;
  #queue = Promise.resolve();
  #onprogress;
  #providers;
  #next = 0;  // index of the provider to try next with the variant that runs
  #left = [];  // providers that were left for another one of the same variant
  variant = '';
  engine = '';
  fallbacks = [];
  golden = [];

  // Open a bundle, check it and choose a variant: the first one that loads and whose golden vectors are right.
  static async open(source, {variant = '', strict = false, providers = ['wasm'], onprogress = () => {}} = {}) {
    const session = new Session(), {bytes, name} = await bytesOf(source);
    session.#onprogress = onprogress;
    session.#providers = providers;
    session.#core = await Core.open(await coreModule(), bytes, name);
    session.#core.verify();
    session.#manifest = session.#core.manifest();
    onprogress({step: 'checked', session});
    session.#core.choose(variant, strict);
    await session.#loadNext();
    return session;
  }

  get manifest() { return this.#manifest; }
  get digest() { return this.#core.digest; }
  get core() { return `libedgekit ${this.#core.version}`; }

  // Run the model on tensors {name, dtype, shape, data}, all of its inputs in its order.
  run(tensors) { return this.#alone(() => this.#run(tensors)); }

  // Prepare a picture, run and decode: {kind, items, width, height, times_ms: {prepare, run, decode}}.
  predict(picture) {
    return this.#alone(async () => {
      const pixels = await pixelsOf(picture), [input] = this.#manifest.inputs;
      const began = performance.now();
      const {bytes, placement} = this.#core.prepare(pixels);
      const {name, dtype, shape} = input;
      const tensors = [{name, dtype, shape, data: arrayOf(dtype, bytes)}];
      const prepared = performance.now();
      const outputs = await this.#run(tensors);
      const ran = performance.now();
      const prediction = this.#core.decode(outputs, placement);
      const times_ms = {prepare: prepared - began, run: ran - prepared, decode: performance.now() - ran};
      return {...prediction, width: pixels.width, height: pixels.height, times_ms};
    });
  }

  close() {
    return this.#alone(() => this.#unload());
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
    this.fallbacks = [...this.#core.settle(), ...this.#left];
  }

  // Load a variant on the first provider whose outputs are right, as another engine would be.
  async #load(variant) {
    const load = ENGINES[variant.target];
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
    this.golden = [];
    this.#engine = await load(this.#core, variant, outputs, provider);
    for (let i = 0; i < golden.length; i++) {
      const made = await this.#engine.run(this.#core.goldenInputs(i, inputs.length));
      const {found, refused} = this.#core.checkGolden(i, made);
      const rows = found.map((one, k) => ({golden: i, output: outputs[k].name, ...one}));
      this.golden.push(...rows);
      this.#onprogress({step: 'golden', variant: variant.name, provider, rows, refused});
      if (refused) throw new EdgeKitError(refused);
    }
    this.variant = variant.name;
    this.engine = this.#engine.name;
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

async function coreModule() {
  compiled ??= fetch(new URL('edgekit.wasm', import.meta.url)).then(async (response) => {
    if (!response.ok) throw new EdgeKitError(`edgekit.wasm: the server answered ${response.status}`);
    return WebAssembly.compile(await response.arrayBuffer());  // whatever type the host gives it
  });
  return compiled;
}

// Return the bytes of a URL, a Blob or an ArrayBuffer, within the limit.
async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return {bytes: within(new Uint8Array(source)), name: 'the bundle'};
  if (source instanceof Blob) {
    within({length: source.size});
    return {bytes: new Uint8Array(await source.arrayBuffer()), name: source.name ?? 'the bundle'};
  }
  const response = await fetch(source), pieces = [];
  if (!response.ok) throw new EdgeKitError(`${source}: the server answered ${response.status}`);
  let length = 0;
  for (const reader = response.body.getReader(); ;) {
    const {done, value} = await reader.read();
    if (done) break;
    pieces.push(value);
    length += value.length;
    if (length > BUNDLE_LIMIT_BYTES) await reader.cancel();
    within({length});
  }
  return {bytes: new Uint8Array(await new Blob(pieces).arrayBuffer()), name: String(source).split(/[?#]/)[0].split('/').pop()};
}

function within(bytes) {
  if (bytes.length > BUNDLE_LIMIT_BYTES) {
    throw new EdgeKitError(`the bundle has more than ${BUNDLE_LIMIT_BYTES} bytes, which a page opens`);
  }
  return bytes;
}

// Return RGBA pixels {data, width, height} of an ImageData, a Blob, an image, a video or a canvas.
async function pixelsOf(picture) {
  if (picture instanceof ImageData) return picture;
  const bitmap = await createImageBitmap(picture, {colorSpaceConversion: 'none'}).catch((problem) => {
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
