// LiteRT.js as an engine of the target "tflite": arrays in the model's order and types, as in edgekit_tflite/run.py.
import {EdgeKitError, PROVIDERS, needProvider, sizeOf} from './core.js';

const VERSION = '2.5.3';
const MODEL = 'model.tflite', CAUSE_CHARACTERS = 400;
const INT32 = [-(2n ** 31n), 2n ** 31n - 1n];
const CREATE = Symbol.for('edgekit.litert');  // engine.py lets LiteRT.js call it
let imported, lastLine = '';

// LiteRT.js asks a package of its own for this. That one adds a script to the page, and a module worker has none.
// What the engine logs is not the page's; its last line is the cause if it fails.
async function createWasmLib(Library, script, files) {
  const urlOf = (path) => files[path.split('/').pop()];
  const {default: start} = await import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ urlOf(script));
  const keep = (line) => { lastLine = line; };
  return new Library(await start({locateFile: urlOf, print: keep, printErr: keep}));
}

async function liteRt(files) {
  globalThis[CREATE] = (Library, script) => createWasmLib(Library, script, files);
  imported ??= import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ files['index.js']).then(async (library) => {
    await withoutWarnings(() => library.loadLiteRt('./'));  // of no GPU, which may not be asked for
    return library;
  }).catch((problem) => {
    throw new EdgeKitError(`LiteRT.js was not loaded: ${cause(problem)}`);
  });
  return imported;
}

async function withoutWarnings(action) {
  const {warn} = console;
  console.warn = () => {};
  try {
    return await action();
  } finally {
    console.warn = warn;
  }
}

// Load a variant on a provider, wasm or webgpu: {name, run(tensors) -> tensors, close()}. Throws EdgeKitError.
export async function load(core, variant, outputs, provider, urls) {
  await needProvider(provider, 'LiteRT.js');
  const files = Object.keys(variant.files), {options} = variant;
  if (files.length !== 1 || files[0] !== MODEL) {
    throw new EdgeKitError(`a page runs variants of tflite with one file, ${MODEL}; this one has ${files.join(', ')}`);
  }
  const library = await liteRt(urls), bytes = core.read(variant.files[MODEL]);
  const refuse = (problem) => { throw new EdgeKitError(`LiteRT.js did not load ${MODEL}: ${cause(problem)}`); };
  const settings = {accelerator: provider, gpuOptions: {precision: 'fp32'}};
  const model = await withoutWarnings(() => library.loadAndCompile(bytes, settings)).catch(refuse);
  if (provider === 'webgpu' && !model.isFullyAccelerated) {
    model.delete();
    throw new EdgeKitError('LiteRT.js has no kernels on WebGPU for some of its operators');
  }
  const details = byName(model.getInputDetails()), ends = byName(options.inputs ?? []);
  for (const name of details.keys()) {
    if (!options.inputs?.some((end) => end.signature_name === name)) refuse(`it reads ${name}, which is no input of the model`);
  }
  return {
    name: `LiteRT.js ${VERSION}, ${PROVIDERS[provider]}`,
    async run(tensors) {
      const feeds = Object.create(null);  // an input may be called __proto__
      let made = {};
      try {
        for (const {name, dtype, shape, data} of tensors) {
          const {signature_name: to, order} = ends.get(name), detail = details.get(to);
          if (!detail) continue;  // the model does not read it
          const stored = order ? transposed(data, shape, order) : data;
          feeds[to] = new library.Tensor(converted(stored, dtype, detail.dtype, name), Array.from(detail.shape));
        }
        made = await model.run(feeds);
        for (const name of Object.keys(made)) {
          if (provider === 'webgpu') made[name] = await made[name].moveTo('wasm');
        }
        return outputs.map(({name, dtype, shape}) => {
          const {signature_name: from, order} = options.outputs.find((end) => end.name === name), tensor = made[from];
          if (!tensor) throw new EdgeKitError(`it returned no output ${name}`);
          const {dtype: type, layout} = tensor.type, data = converted(tensor.toTypedArray().slice(), type, dtype, name);
          const dimensions = Array.from(layout.dimensions);
          if (!order) return {name, dtype, shape: sizeOf(dimensions) === sizeOf(shape) ? shape : dimensions, data};
          return {name, dtype, shape, data: transposed(data, dimensions, order.map((_, axis) => order.indexOf(axis)))};
        });
      } catch (problem) {
        throw problem instanceof EdgeKitError ? problem : new EdgeKitError(`LiteRT.js failed to run: ${cause(problem)}`);
      } finally {
        for (const tensor of [...Object.values(feeds), ...Object.values(made)]) tensor.delete();
      }
    },
    close: () => model.delete(),
  };
}

const byName = (rows) => new Map(rows.map((row) => [row.name, row]));

// Integers have another width in TFLite: its indices are int32, ONNX's int64.
function converted(data, from, to, name) {
  if (from === to) return data;
  if (from === 'int32' && to === 'int64') return BigInt64Array.from(data, BigInt);
  if (from !== 'int64' || to !== 'int32') throw new EdgeKitError(`${name} is ${to}, and the other side has ${from}`);
  if (data.some((value) => value < INT32[0] || value > INT32[1])) {
    throw new EdgeKitError(`a value of ${name} does not fit into int32`);
  }
  return Int32Array.from(data, Number);
}

// Return an array in C order with its axes in another order: of its axes, the one that each new axis is.
function transposed(data, shape, order) {
  const rank = shape.length, steps = new Array(rank).fill(1);
  for (let axis = rank - 2; axis >= 0; axis--) steps[axis] = steps[axis + 1] * shape[axis + 1];
  const sizes = order.map((axis) => shape[axis]), jumps = order.map((axis) => steps[axis]);
  const result = new data.constructor(data.length), at = new Array(rank).fill(0);
  for (let to = 0, from = 0; to < data.length; to++) {
    result[to] = data[from];
    for (let axis = rank - 1; axis >= 0; axis--) {
      from += jumps[axis];
      if (++at[axis] < sizes[axis]) break;
      from -= jumps[axis] * sizes[axis];
      at[axis] = 0;
    }
  }
  return result;
}

function cause(problem) {
  return `${problem?.message ?? problem}; ${lastLine}`.slice(0, CAUSE_CHARACTERS);
}
