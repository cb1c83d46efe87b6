// Run in the page: prepares and decodes cases/0.edgekit and so on, and answers as tests/native/run_cases.cpp.
async (count) => {
  const {Core} = await import('./core.js');
  const bytesOf = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const module = await WebAssembly.compile(await bytesOf('edgekit.wasm'));
  const answers = [];
  for (let i = 0; i < count; i++) {
    const bundle = await bytesOf(`cases/${i}.edgekit`), frame = await bytesOf(`cases/${i}.frame`);
    const core = await Core.open(module, bundle, `${i}.edgekit`);
    const [width, height, isBgr] = new Int32Array(frame.buffer, 0, 3), rgb = frame.subarray(12);
    const data = new Uint8ClampedArray(4 * width * height).fill(255);
    for (let k = 0; k < width * height; k++) {
      for (let c = 0; c < 3; c++) data[4 * k + c] = rgb[3 * k + (isBgr ? 2 - c : c)];
    }
    const {inputs, placement} = core.prepare({data, width, height});
    const bytes = new Uint8Array(inputs[0].data.buffer);
    const {name, dtype, shape} = core.manifest().outputs[0];
    const output = {name, dtype, shape, data: await bytesOf(`cases/${i}.output`)};
    const {items} = core.decode([output], placement);
    const number = (Kind, value) => new Uint8Array(Kind.of(value).buffer);
    const long = (value) => number(BigInt64Array, BigInt(value));
    const pieces = [long(bytes.length), bytes, placement, long(items.length)];
    for (const {index, score, box, label} of items) {
      const text = new TextEncoder().encode(label);
      pieces.push(long(index), number(Float32Array, score), ...box.map((side) => number(Float32Array, side)));
      pieces.push(long(text.length), text);
    }
    const whole = new Uint8Array(await new Blob(pieces).arrayBuffer());
    let text = '';
    for (const byte of whole) text += String.fromCharCode(byte);
    answers.push(btoa(text));
  }
  return answers;
}
