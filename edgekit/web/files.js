// Addresses of the files that a session loads by name, each spelled as bundlers (Vite, webpack, Turbopack) look for
// it. They are computed in the page: a worker from a blob: URL, or in a bundle, has no address that they are relative
// to. The export leaves out the lines of files that it does not write, which a bundler would miss.

// Return name -> URL.
export function files() {
  return {
    'edgekit.wasm': new URL('./edgekit.wasm', import.meta.url).href,
    'ort.wasm.min.mjs': new URL('./onnxruntime/ort.wasm.min.mjs', import.meta.url).href,
    'ort-wasm-simd-threaded.mjs': new URL('./onnxruntime/ort-wasm-simd-threaded.mjs', import.meta.url).href,
    'ort-wasm-simd-threaded.wasm': new URL('./onnxruntime/ort-wasm-simd-threaded.wasm', import.meta.url).href,
    'ort.webgpu.min.mjs': new URL('./onnxruntime/ort.webgpu.min.mjs', import.meta.url).href,
    'ort-wasm-simd-threaded.asyncify.mjs': new URL('./onnxruntime/ort-wasm-simd-threaded.asyncify.mjs', import.meta.url).href,
    'ort-wasm-simd-threaded.asyncify.wasm': new URL('./onnxruntime/ort-wasm-simd-threaded.asyncify.wasm', import.meta.url).href,
    'index.js': new URL('./litert/index.mjs', import.meta.url).href,
    'litert_wasm_internal.js': new URL('./litert/litert_wasm_internal.mjs', import.meta.url).href,
    'litert_wasm_internal.wasm': new URL('./litert/litert_wasm_internal.wasm', import.meta.url).href,
    'litert_wasm_compat_internal.js': new URL('./litert/litert_wasm_compat_internal.mjs', import.meta.url).href,
    'litert_wasm_compat_internal.wasm': new URL('./litert/litert_wasm_compat_internal.wasm', import.meta.url).href,
  };
}
