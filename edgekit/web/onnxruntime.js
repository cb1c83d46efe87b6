// ONNX Runtime's build for the web as an engine of the target "ort", with the settings of edgekit_ort/run.py.
import {EdgeKitError, PROVIDERS, needProvider} from './core.js';

const MODEL = 'model.onnx', CAUSE_CHARACTERS = 400;
const LIBRARIES = {  // the second one by --webgpu
  wasm: ['ort.wasm.min.mjs', 'ort-wasm-simd-threaded.mjs', 'ort-wasm-simd-threaded.wasm'],
  webgpu: ['ort.webgpu.min.mjs', 'ort-wasm-simd-threaded.asyncify.mjs', 'ort-wasm-simd-threaded.asyncify.wasm'],
};
const imported = {};

async function onnxRuntime(provider, files) {
  const [library, mjs, wasm] = LIBRARIES[provider].map((name) => files[name]);
  imported[provider] ??= import(/* @vite-ignore */ /* webpackIgnore: true */ /* turbopackIgnore: true */ library).then((ort) => {
    ort.env.wasm.wasmPaths = {mjs, wasm};
    ort.env.wasm.numThreads = 1;  // more threads need COOP and COEP, which a static host rarely sends
    ort.env.logLevel = 'error';
    return ort;
  }).catch((problem) => {
    throw new EdgeKitError(`onnxruntime-web was not loaded: ${cause(problem)}`);
  });
  return imported[provider];
}

// Load a variant on a provider, wasm or webgpu: {name, run(tensors) -> tensors, close()}. Throws EdgeKitError.
export async function load(core, variant, outputs, provider, urls) {
  await needProvider(provider, 'onnxruntime-web');
  const files = Object.keys(variant.files);
  if (files.length !== 1 || files[0] !== MODEL) {
    throw new EdgeKitError(`a page runs variants of ort with one file, ${MODEL}; this one has ${files.join(', ')}`);
  }
  const ort = await onnxRuntime(provider, urls);
  const {options} = variant, model = core.read(variant.files[MODEL]);
  const optimizers = ['Pad_Fusion', 'QDQPropagationTransformer', ...(options.float_islands ? ['WeightBiasQuantization'] : [])];
  const settings = {
    executionProviders: [provider],
    graphOptimizationLevel: 'all',
    logSeverityLevel: 3,
    extra: {
      session: {qdq_matmulnbits_accuracy_level: '1', disable_quant_qdq: options.widened_weights ? '1' : '0'},
      optimization: {disable_specified_optimizers: optimizers.join(';')},
    },
  };
  const session = await ort.InferenceSession.create(model, settings).catch((problem) => {
    throw new EdgeKitError(`onnxruntime-web did not load ${MODEL}: ${cause(problem)}`);
  });
  return {
    name: `onnxruntime-web ${ort.env.versions.web}, ${PROVIDERS[provider]}`,
    async run(tensors) {
      const feeds = Object.create(null);  // an input may be called __proto__
      for (const {name, dtype, shape, data} of tensors) feeds[name] = new ort.Tensor(dtype, data, shape);
      const made = await session.run(feeds).catch((problem) => {
        throw new EdgeKitError(`onnxruntime-web failed to run: ${cause(problem)}`);
      });
      return outputs.map(({name}) => {
        if (!made[name]) throw new EdgeKitError(`it returned no output ${name}`);
        const {type: dtype, dims: shape, data} = made[name];
        if (!ArrayBuffer.isView(data)) throw new EdgeKitError(`it returned ${name} as ${dtype}`);
        return {name, dtype, shape, data};
      });
    },
    close: () => session.release(),
  };
}

function cause(problem) {
  return String(problem?.message ?? problem).slice(0, CAUSE_CHARACTERS);
}
