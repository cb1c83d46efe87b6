// The check of a bundle against its signature file, as in edgekit/signing: a Sigstore bundle with a DSSE envelope
// around OpenSSF model signing's statement about one file. The keys are Ed25519's, or ECDSA's on P-256, P-384, P-521.
import {EdgeKitError} from './core.js';

export const LIMIT_BYTES = 262_144;
const SIGSTORE = 'application/vnd.dev.sigstore.bundle.v0.3+json', IN_TOTO = 'application/vnd.in-toto+json';
const STATEMENT = 'https://in-toto.io/Statement/v1', MODEL_SIGNING = 'https://model_signing/signature/v1.0';
const ALGORITHMS = [
  {name: 'Ed25519'},
  {name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256', bytes: 32},
  {name: 'ECDSA', namedCurve: 'P-384', hash: 'SHA-384', bytes: 48},
  {name: 'ECDSA', namedCurve: 'P-521', hash: 'SHA-512', bytes: 66},
];

// Throw an EdgeKitError unless one of the keys signed this bundle. keys: texts of PEM files. content: Uint8Array of
// the signature file. Only the bundle's sha256 is computed: nothing of it is parsed.
export async function checkSignature(bundle, keys, content, name) {
  if (!globalThis.crypto?.subtle) throw new EdgeKitError('signatures are checked on https pages only');
  const trusted = await Promise.all(keys.map(imported));
  if (!trusted.length) throw new EdgeKitError('give at least one public key');
  const refuse = (reason) => { throw new EdgeKitError(`${name} is not a signature that can be checked: ${reason}`); };
  const file = json(content), {dsseEnvelope: envelope} = file ?? {};
  if (file?.mediaType !== SIGSTORE) refuse(`it is not a Sigstore bundle of type ${SIGSTORE}`);
  if (envelope?.payloadType !== IN_TOTO) refuse('it has no DSSE envelope with an in-toto statement');
  if (envelope.signatures?.length !== 1) refuse('it does not hold exactly one signature');
  const payload = base64(envelope.payload), signature = base64(envelope.signatures[0]?.sig);
  if (!payload || !signature) refuse('its payload or signature is missing or is not base64');
  const message = new Blob([`DSSEv1 ${IN_TOTO.length} ${IN_TOTO} ${payload.length} `, payload]);
  const signed = await message.arrayBuffer();
  const verdicts = await Promise.all(trusted.map((key) => verifies(key, signature, signed)));
  if (!verdicts.includes(true)) throw new EdgeKitError(`${name} does not hold: no trusted key made it, or it was changed`);
  const {_type, predicateType, predicate} = json(payload) ?? {}, [resource, ...others] = predicate?.resources ?? [];
  if (_type !== STATEMENT || predicateType !== MODEL_SIGNING) refuse("it is not OpenSSF model signing's version 1.0");
  if (predicate.serialization?.method !== 'files' || others.length || resource?.name !== '.') {
    refuse('it was made for a folder or for parts of a file; a bundle is one file');
  }
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bundle));
  const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  if (resource.algorithm !== 'sha256' || resource.digest !== sha256) {
    throw new EdgeKitError(`the bundle is not the file that was signed: its sha256 is not the one in ${name}`);
  }
}

// Return a key of a PEM text with its algorithm.
async function imported(pem) {
  const der = base64(/-----BEGIN PUBLIC KEY-----([^-]+)-----END PUBLIC KEY-----/.exec(String(pem))?.[1].replace(/\s/g, ''));
  for (const algorithm of der ? ALGORITHMS : []) {
    try {
      return {algorithm, key: await crypto.subtle.importKey('spki', der, algorithm, false, ['verify'])};
    } catch {
      // a key of another algorithm, or one that this browser lacks
    }
  }
  throw new EdgeKitError('a public key is not the PEM text of an Ed25519 key or of an EC key on P-256, P-384 or P-521');
}

async function verifies({algorithm, key}, signature, message) {
  const form = algorithm.bytes ? pair(signature, algorithm.bytes) : signature;
  return form !== null && crypto.subtle.verify(algorithm, key, form, message);
}

// Return ECDSA's two numbers, each of so many bytes, from their DER form: what WebCrypto reads. null: it is not that.
function pair(der, bytes) {
  const numbers = new Uint8Array(2 * bytes);
  let at = der[1] === 0x81 ? 3 : 2;
  if (der[0] !== 0x30 || der[at - 1] !== der.length - at) return null;
  for (const end of [bytes, 2 * bytes]) {
    const length = der[at + 1], start = at + 2 + (der[at + 2] === 0 ? 1 : 0), size = at + 2 + length - start;
    if (der[at] !== 0x02 || size < 1 || size > bytes) return null;
    numbers.set(der.subarray(start, start + size), end - size);
    at = start + size;
  }
  return at === der.length ? numbers : null;
}

function json(bytes) {
  try {
    return JSON.parse(new TextDecoder('utf-8', {fatal: true}).decode(bytes));
  } catch {
    return null;
  }
}

function base64(text) {
  try {
    return typeof text === 'string' ? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)) : null;
  } catch {
    return null;
  }
}
