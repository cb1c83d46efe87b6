// Addresses of the files that a session loads by name. They are spelled as bundlers (e.g. Vite) look for them,
// and computed in the page: a worker from a blob: URL, or in a bundle, has no address that they are relative to.
const ONNX_RUNTIME = ['ort.wasm.min.mjs', 'ort-wasm-simd-threaded.mjs', 'ort-wasm-simd-threaded.wasm'];
const WEBGPU = ['ort.webgpu.min.mjs', 'ort-wasm-simd-threaded.asyncify.mjs', 'ort-wasm-simd-threaded.asyncify.wasm'];
const LITERT = [
  'index.js', 'litert_wasm_internal.js', 'litert_wasm_internal.wasm',
  'litert_wasm_compat_internal.js', 'litert_wasm_compat_internal.wasm',
];

// Return name -> URL. Files of engines that the export has not are named too, and not loaded.
export function files() {
  const addresses = {'edgekit.wasm': new URL('./edgekit.wasm', import.meta.url).href};
  for (const name of [...ONNX_RUNTIME, ...WEBGPU]) addresses[name] = new URL(`./onnxruntime/${name}`, import.meta.url).href;
  for (const name of LITERT) addresses[name] = new URL(`./litert/${name}`, import.meta.url).href;
  return addresses;
}
