/** A problem of the bundle, the picture or the engine, with a text for users. */
export class EdgeKitError extends Error {}

/** numpy's name of an element type. int64 and uint64 are BigInt arrays, float16 and bool are bytes. */
export type Dtype =
  | 'bool' | 'int8' | 'uint8' | 'int16' | 'uint16' | 'float16' | 'int32' | 'uint32' | 'float32'
  | 'int64' | 'uint64' | 'float64';

export interface Tensor {
  name: string;
  dtype: Dtype;
  /** -1 in a declared output: the size depends on the data. */
  shape: readonly number[];
  data: ArrayBufferView;
}

/** One class of a picture, or one object. */
export interface Item {
  index: number;
  /** The card's label, or the index where it has none. A stranger's text: show it as text, not as HTML. */
  label: string;
  score: number;
  /** x1, y1, x2, y2 in pixels of the picture; zeros for a class. */
  box: [number, number, number, number];
}

export interface Prediction {
  kind: 'classify' | 'detect';
  /** Best first. */
  items: Item[];
  /** Size of the picture in pixels. */
  width: number;
  height: number;
  /** Milliseconds by stage. */
  times_ms: {
    /** Pixels of the picture into the worker's memory; a file is decoded there. */
    read: number;
    prepare: number;
    run: number;
    decode: number;
  };
}

/** One window of a live sound. times_ms.read is 0; the first window's times_ms.prepare includes resampling. */
export interface WindowPrediction {
  kind: 'classify' | 'voice-activity';
  /** Best first; of voice activity one item, 'speech' (index 1) or 'no speech' (0) with the probability of speech. */
  items: Item[];
  /** Seconds from the sound's begin. */
  start_s: number;
  end_s: number;
  times_ms: Prediction['times_ms'];
}

/** Agreement of one output with a golden vector. */
export interface Golden {
  golden: number;
  output: string;
  /** Signal-to-noise ratio in dB; Infinity: equal. */
  snr_db: number;
  limit_db: number | null;
}

export interface Fallback {
  from: string;
  to: string;
  reason: string;
}

export type Progress =
  | {step: 'checked'; session: Session}
  | {step: 'loading'; variant: string; provider: string}
  | {step: 'golden'; variant: string; provider: string; rows: Golden[]; refused: string}
  | {step: 'left'; variant: string; reason: string};

export interface Options {
  /** Variant to try first. */
  variant?: string;
  /** Do not fall back to another variant. */
  strict?: boolean;
  /** Providers of onnxruntime-web for each variant, the one to try first at the front; default: ['wasm']. */
  providers?: readonly ('wasm' | 'webgpu')[];
  /**
   * Public keys, as the texts of PEM files (Ed25519; EC on P-256, P-384, P-521). One of them must have signed the
   * bundle with `edgekit release sign`, or it is refused before anything of it is parsed. Needs https or localhost.
   */
  keys?: readonly string[];
  /** With keys: the bundle's signature file; default: at the bundle's URL with .sig added to its path. */
  signature?: string | URL | Blob | ArrayBuffer;
  onprogress?: (progress: Progress) => void;
}

/** Times of the variant that runs, on one golden vector's inputs, without preparation and decoding. */
export interface Bench {
  /** Seconds that were measured, and runs in them; at most 2,000,000 runs enter the percentiles. */
  seconds: number;
  runs: number;
  load_ms: number;
  /** First run after loading. */
  first_ms: number;
  p50_ms: number;
  p95_ms: number;
  p99_ms: number;
  /** Median of each tenth of the time: a device that becomes hot becomes slower. */
  slices_ms: number[];
}

/**
 * A bundle whose best variant that is right in this browser runs. It computes in a worker: the page responds
 * meanwhile. A Content Security Policy needs script-src 'self' 'wasm-unsafe-eval' and worker-src 'self' blob:.
 * Where a worker cannot load its files, as Firefox's cannot without a network, it computes in the page.
 */
export class Session {
  private constructor();

  /**
   * Open a bundle, check format and hashes, and choose the first variant that loads and whose golden vectors
   * are within their limits. Rejects with EdgeKitError: the bundle is refused, or no variant is right here.
   * @param source URL, file or content; at most 512 MiB.
   */
  static open(source: string | URL | Blob | ArrayBuffer, options?: Options): Promise<Session>;

  /** Name of the variant that runs. */
  readonly variant: string;
  /** Engine and its version. */
  readonly engine: string;
  /** Version of libedgekit. */
  readonly core: string;
  /** sha256 of the manifest, which names the bundle. */
  readonly digest: string;
  /** The bundle's manifest; docs/bundle-format.md describes it. */
  readonly manifest: any;
  readonly golden: readonly Golden[];
  readonly fallbacks: readonly Fallback[];

  /**
   * Prepare a picture by the card, run the model and decode its outputs. Calls wait for each other.
   * Rejects with EdgeKitError: the picture cannot be read, or every variant has failed.
   * @param picture at most 67,108,864 pixels.
   */
  predict(picture: ImageData | Blob | HTMLImageElement | HTMLVideoElement | HTMLCanvasElement
    | OffscreenCanvas | ImageBitmap): Promise<Prediction>;

  /**
   * Predict a live sound piece by piece; resolves to the windows that a piece completes, which may be none.
   * Rejects with EdgeKitError: the card takes no sound, a sample is not finite, or every variant has failed.
   * @param samples one channel, full scale is 1; any length.
   * @param rate samples a second, of the first piece of a sound; the core resamples to the card's rate.
   * @param options.begin another sound begins: states and context are those before the first run.
   */
  listen(samples: Float32Array, rate: number, options?: {begin?: boolean}): Promise<WindowPrediction[]>;

  /** Run the model on all of its inputs, in its order; returns all outputs. */
  run(inputs: Tensor[]): Promise<Tensor[]>;

  /**
   * Measure the variant that runs. Rejects with EdgeKitError: the engine failed, which is not hidden here.
   * @param options.seconds default: 3.
   */
  bench(options?: {seconds?: number; onprogress?: (progress: {seconds: number; p50_ms: number}) => void}): Promise<Bench>;

  /** End the worker, after the calls that wait. Later calls reject. */
  close(): Promise<void>;
}
