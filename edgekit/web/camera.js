// A camera's live video. One frame is predicted at a time; frames that arrive meanwhile are dropped, not queued.
import {EdgeKitError} from './core.js';

const RATE_MS = 2000;
const REFUSALS = {
  NotAllowedError: "The browser did not allow the camera. Allow it for this page in the browser's settings, then try again.",
  NotFoundError: 'This device has no camera that the browser can use.',
  NotReadableError: 'The camera did not start. Another program may be using it.',
};

export class Camera {
  #video;
  #stream = null;
  #onend;
  #started;

  // Ask for a camera and show it in a video element. Rejects with EdgeKitError.
  // onend(problem): the camera has stopped by itself, or a prediction failed.
  static async open(video, onend) {
    if (!isSecureContext || !navigator.mediaDevices) {
      throw new EdgeKitError('The camera needs https: browsers allow it only there, and on localhost.');
    }
    const camera = new Camera(), wanted = {facingMode: 'environment', width: {ideal: 1280}, height: {ideal: 720}};
    camera.#video = video;
    camera.#onend = onend;
    try {
      camera.#stream = await navigator.mediaDevices.getUserMedia({video: wanted, audio: false});
      const [track] = camera.#stream.getVideoTracks();
      track.addEventListener('ended', () => camera.#fail(new EdgeKitError('The camera was disconnected.')));
      video.srcObject = camera.#stream;
      await video.play();
    } catch (problem) {
      camera.stop();
      throw new EdgeKitError(REFUSALS[problem.name] ?? `The camera did not start: ${problem.message || problem.name}`);
    }
    return camera;
  }

  get running() { return this.#stream !== null; }

  // Predict frames until stop: predict(video) -> prediction; onresult(prediction, {rate, dropped}).
  async run(predict, onresult) {
    const ended = [], video = this.#video;
    const shown = () => video.getVideoPlaybackQuality().totalVideoFrames;
    const first = shown();
    let predicted = 0;
    this.#started = performance.now();
    while (this.running) {
      await nextFrame(video);
      if (!this.running) return;
      try {
        const prediction = await predict(video), now = performance.now();
        if (!this.running) return;
        predicted++;
        ended.push(now);
        while (now - ended[0] > RATE_MS) ended.shift();
        const rate = 1000 * ended.length / Math.min(RATE_MS, now - this.#started);
        onresult(prediction, {rate, dropped: Math.max(0, shown() - first - predicted)});
      } catch (problem) {
        this.#fail(problem);
      }
    }
  }

  // End the camera's tracks: its light goes out.
  stop() {
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
    this.#video.srcObject = null;
  }

  #fail(problem) {
    if (!this.running) return;
    this.stop();
    this.#onend(problem);
  }
}

function nextFrame(video) {
  return new Promise((done) => {
    if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(done);
    else requestAnimationFrame(done);
  });
}
