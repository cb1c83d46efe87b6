// A camera's live video. One frame is predicted at a time; frames that arrive meanwhile are dropped, not queued.
import {openMedia, refusal} from './media.js';

const RATE_MS = 2000;

export class Camera {
  #video;
  #stream = null;
  #onend;
  #started;

  // Ask for a camera and show it in a video element. Rejects with EdgeKitError.
  // onend(problem): the camera has stopped by itself, or a prediction failed.
  static async open(video, onend) {
    const camera = new Camera(), wanted = {facingMode: 'environment', width: {ideal: 1280}, height: {ideal: 720}};
    camera.#video = video;
    camera.#onend = onend;
    try {
      camera.#stream = await openMedia('camera', {video: wanted, audio: false}, (problem) => camera.#fail(problem));
      video.srcObject = camera.#stream;
      await video.play();
    } catch (problem) {
      camera.stop();
      throw refusal('camera', problem);
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
