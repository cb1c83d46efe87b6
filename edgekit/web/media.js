// A camera or a microphone of this device, asked for by the browser.
import {EdgeKitError} from './core.js';

const REFUSALS = {
  NotAllowedError: (device) => `The browser did not allow the ${device}. Allow it for this page in the browser's settings, then try again.`,
  NotFoundError: (device) => `This device has no ${device} that the browser can use.`,
  NotReadableError: (device) => `The ${device} did not start. Another program may be using it.`,
};

// Ask for a device, 'camera' or 'microphone'. Rejects with EdgeKitError. onend(problem): it was disconnected.
export async function openMedia(device, constraints, onend) {
  if (!isSecureContext || !navigator.mediaDevices) {
    throw new EdgeKitError(`The ${device} needs https: browsers allow it only there, and on localhost.`);
  }
  const stream = await navigator.mediaDevices.getUserMedia(constraints).catch((problem) => { throw refusal(device, problem); });
  stream.getTracks()[0].addEventListener('ended', () => onend(new EdgeKitError(`The ${device} was disconnected.`)));
  return stream;
}

// Return the error for a user of what a browser says of a device.
export function refusal(device, problem) {
  if (problem instanceof EdgeKitError) return problem;
  return new EdgeKitError(REFUSALS[problem.name]?.(device) ?? `The ${device} did not start: ${problem.message || problem.name}`);
}
