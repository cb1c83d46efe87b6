// A bundle in a page. The work is done in a worker, session.js in session-worker.js, so that the page responds
// meanwhile; in the page itself, if the worker loads nothing. edgekit.d.ts has the types.
//
//   import {Session} from './edgekit.js';
//   const session = await Session.open('model.edgekit');
//   const {items} = await session.predict(document.querySelector('img'));
import {EdgeKitError} from './core.js';
import {files} from './files.js';

export {EdgeKitError};

export class Session {
  #worker;
  #calls = new Map();  // id -> {resolve, reject, onprogress} of the calls that wait
  #last = 0;
  #closed = null;  // the error of calls from now on
  manifest = null;
  digest = '';
  core = '';
  variant = '';
  engine = '';
  fallbacks = [];
  golden = [];

  // Open a bundle, check it and choose a variant: the first one that loads and whose golden vectors are right.
  // keys: PEM texts, one of which must have signed the bundle; signature: of the bundle, by default at its URL + .sig.
  static async open(source, options = {}) {
    const {variant = '', strict = false, providers = ['wasm'], onprogress = () => {}, keys = null} = options;
    const session = new Session(), place = placeOf(source);
    const signature = keys && placeOf(options.signature ?? (typeof place === 'string' ? besideIt(place) : null));
    if (keys && !signature) throw new EdgeKitError('a bundle without a URL needs the option signature beside keys');
    const openIn = async (start) => {
      session.#closed = null;
      session.#worker = start((data) => session.#answered(data), (problem) => session.#end(problem));
      return session.#call('open', [place, {variant, strict, providers: [...providers], keys: keys && [...keys], signature, files: files()}], [],
        (progress) => onprogress(progress.step === 'checked' ? {...progress, session} : progress));
    };
    try {
      await openIn(worker).catch(async (problem) => {
        if (problem instanceof EdgeKitError) throw problem;
        session.#worker?.terminate();
        await openIn(await page());
      });
    } catch (problem) {
      session.#end(problem);
      throw problem;
    }
    return session;
  }

  // Run the model on tensors {name, dtype, shape, data}, all of its inputs in its order.
  run(tensors) { return this.#call('run', [tensors]); }

  // Prepare a picture, run and decode: {kind, items, width, height, times_ms: {read, prepare, run, decode}}.
  async predict(picture) {
    if (picture instanceof ImageData || picture instanceof Blob) return this.#call('predict', [picture]);
    const bitmap = await createImageBitmap(picture, {colorSpaceConversion: 'none'}).catch((problem) => {
      throw new EdgeKitError(`the browser cannot read this picture: ${problem.message}`);
    });
    return this.#call('predict', [bitmap], [bitmap]);
  }

  // Predict a live sound: pieces of one channel (Float32Array, full scale is 1) at a rate in Hz, which the core
  // resamples. Resolves to the windows that a piece completes: [{start_s, end_s, kind, items, times_ms}].
  listen(samples, rate, {begin = false} = {}) { return this.#call('listen', [samples, rate, begin]); }

  // Run the first golden vector's inputs again and again, and nothing else in between.
  bench({seconds = 3, onprogress = () => {}} = {}) { return this.#call('bench', [seconds], [], onprogress); }

  async close() {
    if (this.#closed) return;
    await this.#call('close', []).catch(() => {});
    this.#end(new EdgeKitError('the session is closed'));
  }

  #call(name, values, transferred = [], onprogress = () => {}) {
    if (this.#closed) return Promise.reject(this.#closed);
    return new Promise((resolve, reject) => {
      const id = ++this.#last;
      this.#calls.set(id, {resolve, reject, onprogress});
      try {
        this.#worker.postMessage({id, name, values}, transferred);
      } catch (problem) {
        this.#calls.delete(id);
        reject(new EdgeKitError(`an argument cannot be sent to the worker: ${problem.message}`));
      }
    });
  }

  #answered({id, value, refused, failed, progress, state}) {
    const call = this.#calls.get(id);
    Object.assign(this, state);
    if (progress) {
      call.onprogress(progress);
      return;
    }
    this.#calls.delete(id);
    if (refused !== undefined) call.reject(new EdgeKitError(refused));
    else if (failed !== undefined) call.reject(new Error(failed));
    else call.resolve(value);
  }

  #end(problem) {
    this.#closed ??= problem;
    this.#worker?.terminate();
    for (const {reject} of this.#calls.values()) reject(problem);
    this.#calls.clear();
  }
}

// Return a URL whole, because a worker's base is another one; anything else as it is.
function placeOf(source) {
  if (typeof source !== 'string' && !(source instanceof URL)) return source;
  return new URL(source, globalThis.document?.baseURI ?? location.href).href;
}

function besideIt(place) {
  const url = new URL(place);
  url.pathname += '.sig';
  return url.href;
}

// Start the worker. A worker from a blob: URL has the page's Content Security Policy; one from a file has the
// policy in that file's headers, and a static host sends none. A bundler looks for the line `new Worker(new URL(...))`
// with the global name, and puts a worker of its own there, which starts by its address alone.
function worker(onmessage, onend) {
  const {Worker: Native} = globalThis;
  let url, started, isReady = false;
  globalThis.Worker = class extends Native {
    constructor(file, options) {
      const {href, pathname} = new URL(file, location.href), isOwn = pathname.endsWith('/session-worker.js');
      if (isOwn) url = URL.createObjectURL(new Blob([`import ${JSON.stringify(href)};`], {type: 'text/javascript'}));
      super(url ?? file, options);
    }
  };
  try {
    started = new Worker(new URL('./session-worker.js', import.meta.url), {type: 'module'});
  } finally {
    globalThis.Worker = Native;
  }
  started.onmessage = ({data}) => {
    if (data === 'ready') {
      isReady = true;
      if (url) URL.revokeObjectURL(url);
    } else {
      onmessage(data);
    }
  };
  started.onmessageerror = () => onend(new EdgeKitError("the worker's answer cannot be read"));
  started.onerror = (event) => {
    event.preventDefault?.();
    const text = `the worker stopped: ${event.message || 'no reason given'}`;
    onend(isReady ? new EdgeKitError(text) : new Error(text));
  };
  return started;
}

// Return what starts the session in the page. Firefox's workers bypass the service worker, so they load nothing
// without a network (its bug 2067202); a page's policy may allow no worker.
async function page() {
  const {answering} = await import('./session.js').catch((problem) => {
    throw new EdgeKitError(`session.js was not loaded: ${problem.message}`);
  });
  return (onmessage) => ({postMessage: answering(onmessage), terminate() {}});
}
