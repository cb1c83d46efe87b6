// libedgekit as WebAssembly (edgekit/native/source/web.cpp). An instance holds one bundle; what it refuses
// becomes an EdgeKitError with the core's text. Nothing here decides: that is the core's.

export class EdgeKitError extends Error {
  name = 'EdgeKitError';
}

export const PROVIDERS = {wasm: 'WebAssembly', webgpu: 'WebGPU'};

// Throws EdgeKitError where an engine can't run on a provider in this page.
export async function needProvider(provider, engine) {
  if (!Object.hasOwn(PROVIDERS, provider)) throw new EdgeKitError(`no provider ${provider} of ${engine} in a page`);
  if (provider === 'webgpu' && !(await navigator.gpu?.requestAdapter())) {
    throw new EdgeKitError('this browser has no WebGPU for this page');
  }
}

const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  float16: Uint16Array, int32: Int32Array, uint32: Uint32Array, float32: Float32Array,
  int64: BigInt64Array, uint64: BigUint64Array, float64: Float64Array,
};
// Layout of edgekit.h's structures on wasm32, in bytes.
const TENSOR = {name: 0, dtype: 4, rank: 8, shape: 16, bytes: 144, size: 148, all: 152};
const ITEM = {index: 0, label: 8, score: 12, box: 16, all: 32};
const INPUT = {kind: 0, values: 4, width: 8, height: 12, order: 16, count: 20, rate_hz: 24, begins: 28, ends: 32, all: 36};
const PREPARED = {count: 0, inputs: 4, placement: 8, start_s: 56, end_s: 64};
const PICTURE = 0, SOUND = 1, DIGEST = 0, MANIFEST = 1;
const PLACEMENT_BYTES = 48, RANK_LIMIT = 16, NO_LIMIT_DB = -1000;
const IGNORED = 52;  // WASI's "not implemented": the core writes to no file

export class Core {
  #exports;
  #bundle;
  #chooser = 0;
  #preparation = 0;

  // Open a bundle: header, manifest and limits are checked. bytes: Uint8Array. Throws EdgeKitError.
  static async open(module, bytes, name) {
    const core = new Core();
    const imports = {
      edgekit: {
        size: () => bytes.length,
        read: (at, buffer, size) => {
          const piece = bytes.subarray(at, Math.min(at + (size >>> 0), bytes.length));
          new Uint8Array(core.#exports.memory.buffer).set(piece, buffer >>> 0);
          return piece.length;
        },
      },
      wasi_snapshot_preview1: {fd_close: () => IGNORED, fd_seek: () => IGNORED, fd_write: () => IGNORED},
    };
    core.#exports = (await WebAssembly.instantiate(module, imports)).exports;
    core.#call('_initialize');
    core.#bundle = core.#with(name, (at) => core.#made('edgekit_open', at));
    return core;
  }

  get version() { return this.#text(this.#exports.edgekit_version()); }
  get digest() { return this.#text(this.#made('edgekit_text', this.#bundle, DIGEST, 0)); }

  // Return the manifest. The core has checked it, so JSON.parse meets no key twice and no number too large.
  manifest() { return JSON.parse(this.#text(this.#made('edgekit_text', this.#bundle, MANIFEST, 0))); }

  // Check every hash. Throws EdgeKitError.
  verify() { this.#done('edgekit_verify', this.#bundle); }

  // Return a copy of an entry, its hash checked.
  read(entry) {
    return this.#with(entry, (name) => {
      const size = Number(this.#done('edgekit_read', this.#bundle, name, 0, 0));
      return this.#within(size, (at) => {
        this.#done('edgekit_read', this.#bundle, name, at, size);
        return this.#bytes(at, size).slice();
      });
    });
  }

  // Prepare a picture by the card. data: RGBA. Returns {inputs, placement}: all of the model's inputs, and where
  // the picture lies in its own. begins: the first one of a series, from the states before the first run.
  prepare({data, width, height}, begins = false) {
    const pixels = width * height;
    return this.#within(3 * pixels, (picture) => {
      const rgb = this.#bytes(picture, 3 * pixels);
      for (let i = 0, to = 0; i < 4 * pixels; i += 4) {
        rgb[to++] = data[i];
        rgb[to++] = data[i + 1];
        rgb[to++] = data[i + 2];
      }
      return this.#prepared({kind: PICTURE, values: picture, width, height, begins: Number(begins)});
    });
  }

  // Take samples of a sound, one channel as a Float32Array at a rate in Hz, and return its next window
  // {inputs, start_s, end_s}, or null if samples are missing. begins: the first ones of another sound.
  hear(samples, rate_hz, begins) {
    return this.#within(samples.byteLength, (values) => {
      this.#bytes(values, samples.byteLength).set(new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength));
      return this.#prepared({kind: SOUND, values, count: samples.length, rate_hz, begins: Number(begins)});
    });
  }

  // Return the next window of the samples that wait, or null.
  nextWindow() { return this.#prepared(null); }

  // Keep the states among a run's outputs for the next call.
  carry(outputs) {
    this.#tensors(outputs, (at, count) => this.#done('edgekit_carry', this.#preparation, at, count));
  }

  // Decode outputs by the card's task: {kind, items: [{index, label, score, box}]}, best first.
  decode(outputs, placement = []) {
    return this.#tensors(outputs, (at, count) => this.#within(PLACEMENT_BYTES, (placed) => {
      this.#bytes(placed, PLACEMENT_BYTES).set(placement);
      const found = this.#made('edgekit_decode', this.#bundle, at, count, placed);
      const view = this.#view(), items = [], first = view.getUint32(found + 8, true);
      for (let i = 0; i < view.getUint32(found + 4, true); i++) {
        const item = first + i * ITEM.all, box = [0, 1, 2, 3].map((k) => view.getFloat32(item + ITEM.box + 4 * k, true));
        const label = this.#text(view.getUint32(item + ITEM.label, true));
        items.push({index: Number(view.getBigInt64(item, true)), label, score: view.getFloat32(item + ITEM.score, true), box});
      }
      const kind = this.#text(view.getUint32(found, true));
      this.#exports.edgekit_free_prediction(found);
      return {kind, items};
    }));
  }

  // Begin the choice of a variant, which candidate, fail, checkGolden and settle go on with.
  choose(variant, strict) {
    const begin = (name) => this.#made('web_choose', this.#bundle, name, strict ? 1 : 0);
    this.#chooser = variant ? this.#with(variant, begin) : begin(0);
  }

  // Return the index of the variant to load. Throws EdgeKitError: all have failed.
  candidate() { return this.#done('web_candidate', this.#chooser); }

  // Leave the variant, for a reason. Throws EdgeKitError if the choice is strict.
  fail(reason) { this.#with(reason, (text) => this.#done('web_fail', this.#chooser, text)); }

  // The variant runs; returns what was left for it: [{from, to, reason}].
  settle() {
    const count = this.#done('web_settle', this.#chooser);
    return this.#within(12, (at) => Array.from({length: count}, (_, i) => {
      this.#done('web_fallback', this.#chooser, i, at);
      const view = this.#view(), [from, to, reason] = [0, 4, 8].map((k) => this.#text(view.getUint32(at + k, true)));
      return {from, to, reason};
    }));
  }

  // Return the inputs of a golden vector.
  goldenInputs(golden, count) {
    return this.#within(TENSOR.all, (at) => Array.from({length: count}, (_, i) => {
      this.#done('web_golden_input', this.#chooser, this.#bundle, golden, i, at);
      return this.#tensor(at);
    }));
  }

  // Compare outputs with a golden vector: {found: [{snr_db, limit_db}], refused: reason or ''}. An SNR of
  // Infinity: they are equal.
  checkGolden(golden, outputs) {
    return this.#tensors(outputs, (at, count) => this.#within(16 * count + 4, (pairs) => {
      const refusedAt = pairs + 16 * count;
      const number = this.#call('web_check_golden', this.#chooser, golden, at, count, pairs, refusedAt);
      const view = this.#view(), found = [];
      for (let i = 0; i < number; i++) {
        const [snr_db, limit_db] = [0, 8].map((k) => view.getFloat64(pairs + 16 * i + k, true));
        found.push({snr_db, limit_db: limit_db === NO_LIMIT_DB ? null : limit_db});
      }
      return {found, refused: view.getInt32(refusedAt, true) ? this.#refusal().message : ''};
    }));
  }

  // Check dtypes and shapes of a run's outputs, and that they are finite. Throws EdgeKitError.
  checkOutputs(outputs) {
    this.#tensors(outputs, (at, count) => this.#done('web_check_outputs', this.#chooser, at, count));
  }

  // Call an export. A trap leaves the instance unusable, and is an error like others.
  #call(name, ...given) {
    try {
      return this.#exports[name](...given);
    } catch (problem) {
      throw new EdgeKitError(`the core stopped in ${name}: ${problem.message ?? problem}`);
    }
  }

  #done(name, ...given) {
    const code = this.#call(name, ...given);
    if (code < 0) throw this.#refusal();
    return code;
  }

  #made(name, ...given) {
    const pointer = this.#call(name, ...given) >>> 0;
    if (!pointer) throw this.#refusal();
    return pointer;
  }

  #refusal() { return new EdgeKitError(this.#text(this.#exports.edgekit_error())); }

  // Memory may have grown since the last call: views are made anew.
  #view() { return new DataView(this.#exports.memory.buffer); }
  #bytes(at, size) { return new Uint8Array(this.#exports.memory.buffer, at >>> 0, size); }

  #text(at) {
    const memory = new Uint8Array(this.#exports.memory.buffer), start = at >>> 0;
    return new TextDecoder().decode(memory.subarray(start, memory.indexOf(0, start)));
  }

  // Call with memory of `size` bytes.
  #within(size, use) {
    const at = this.#call('web_allocate', Math.max(size, 1)) >>> 0;
    if (!at) throw new EdgeKitError(`out of memory: ${size} bytes`);
    try {
      return use(at);
    } finally {
      this.#call('web_free', at);
    }
  }

  // Call with a text in memory.
  #with(text, use) {
    const encoded = new TextEncoder().encode(text);
    return this.#within(encoded.length + 1, (at) => {
      this.#bytes(at, encoded.length).set(encoded);
      this.#bytes(at, encoded.length + 1)[encoded.length] = 0;
      return use(at);
    });
  }

  // Call with tensors in memory, edgekit_tensor after edgekit_tensor.
  #tensors(tensors, use) {
    const texts = tensors.map(({name, dtype}) => [name, dtype].map((text) => new TextEncoder().encode(text + '\0')));
    const room = (size) => Math.ceil(size / 16) * 16;
    const sizes = tensors.map(({data}, i) => room(data.byteLength) + room(texts[i][0].length) + room(texts[i][1].length));
    const head = room(TENSOR.all * tensors.length);
    return this.#within(head + sizes.reduce((a, b) => a + b, 0), (start) => {
      const view = this.#view();
      let to = start + head;
      const keep = (bytes) => {
        this.#bytes(to, bytes.length).set(bytes);
        to += room(bytes.length);
        return to - room(bytes.length);
      };
      tensors.forEach(({shape, data}, i) => {
        if (shape.length > RANK_LIMIT) throw new EdgeKitError(`an output has ${shape.length} dimensions; the limit is 16`);
        const at = start + i * TENSOR.all;
        view.setUint32(at + TENSOR.name, keep(texts[i][0]), true);
        view.setUint32(at + TENSOR.dtype, keep(texts[i][1]), true);
        view.setInt32(at + TENSOR.rank, shape.length, true);
        shape.forEach((side, k) => view.setBigInt64(at + TENSOR.shape + 8 * k, BigInt(side), true));
        view.setUint32(at + TENSOR.bytes, keep(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)), true);
        view.setUint32(at + TENSOR.size, data.byteLength, true);
      });
      return use(start, tensors.length);
    });
  }

  // Prepare an input, whose fields are those of edgekit_input; null asks for the next window.
  #prepared(input) {
    this.#preparation ||= this.#made('edgekit_begin', this.#bundle);
    const prepare = (at) => {
      const made = this.#made('edgekit_prepare', this.#preparation, at), view = this.#view();
      const count = view.getInt32(made + PREPARED.count, true), first = view.getUint32(made + PREPARED.inputs, true);
      if (!count) return null;
      const inputs = Array.from({length: count}, (_, i) => this.#tensor(first + i * TENSOR.all));
      const [start_s, end_s] = [PREPARED.start_s, PREPARED.end_s].map((at) => view.getFloat64(made + at, true));
      return {inputs, placement: this.#bytes(made + PREPARED.placement, PLACEMENT_BYTES).slice(), start_s, end_s};
    };
    return input ? this.#within(INPUT.all, (at) => {
      const view = this.#view();
      for (const field of Object.keys(INPUT)) {
        if (field !== 'all') view.setInt32(at + INPUT[field], input[field] ?? 0, true);
      }
      return prepare(at);
    }) : prepare(0);
  }

  // Return a copy of a tensor in memory.
  #tensor(at) {
    const view = this.#view(), rank = view.getInt32(at + TENSOR.rank, true);
    const dtype = this.#text(view.getUint32(at + TENSOR.dtype, true));
    const shape = Array.from({length: rank}, (_, k) => Number(view.getBigInt64(at + TENSOR.shape + 8 * k, true)));
    const bytes = this.#bytes(view.getUint32(at + TENSOR.bytes, true), view.getUint32(at + TENSOR.size, true)).slice();
    return {name: this.#text(view.getUint32(at, true)), dtype, shape, data: new ARRAYS[dtype](bytes.buffer)};
  }
}

// Return the number of elements of a shape.
export function sizeOf(shape) {
  return shape.reduce((size, dimension) => size * dimension, 1);
}
