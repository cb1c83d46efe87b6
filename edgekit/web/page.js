// The page: a bundle is checked on this device, and predicts photographs, a camera's frames or a microphone's sound. Texts of a bundle
// are a stranger's: they become text nodes, never markup.
import {Camera} from './camera.js';
import {brief, colourOf, decibels, drawItems, element, ms, named, rowsOf} from './drawing.js';
import {Session, EdgeKitError} from './edgekit.js';
import {Microphone} from './microphone.js';
import {drawTimeline} from './timeline.js';

const $ = (id) => document.getElementById(id);
const SIDE_LIMIT = 1600, STAGES = ['read', 'prepare', 'run', 'decode'];
const SOURCES = ['photo', 'camera', 'microphone'];
const providers = document.querySelector('meta[name=providers]').content.split(' ');
const WINDOWS_KEPT = 200;
const FOR_PICTURES = {
  heading: 'Photograph or camera', button: 'camera', live: 'Use the camera', stop: 'Stop the camera',
  hint: 'Choose a photograph, drop one here, or use the camera. Pictures stay on this device.',
};
const FOR_SOUNDS = {
  heading: 'Microphone', button: 'microphone', live: 'Use the microphone', stop: 'Stop the microphone',
  hint: 'Use the microphone to classify what it hears. Sounds stay on this device.',
};
let session = null, live = null;  // live: a Camera or a Microphone that runs
let words = FOR_PICTURES;

function check(kind, verdict, what) {
  const row = element('li', kind, '');
  row.append(element('span', 'verdict', verdict), element('span', 'what', what));
  $('checks').append(row);
}

function fact(name, value, className = '') {
  const row = document.createElement('div');
  row.append(element('dt', '', name), element('dd', className, value));
  $('facts').append(row);
}

function report({step, session: opened, variant, provider, rows, reason}) {
  if (step === 'checked') {
    const {card, entries} = opened.manifest;
    $('title').textContent = brief(card?.title || opened.manifest.source.file);
    document.title = $('title').textContent;
    check('passed', 'passed', `format, limits and the sha256 of ${entries.length} entries`);
    fact('bundle (sha256 of its manifest)', opened.digest, 'digest');
  } else if (step === 'loading') {
    $('summary').textContent = `Loading ${brief(variant)} …`;
  } else if (step === 'golden') {
    for (const {golden, output, snr_db, limit_db} of rows) {
      const wrong = limit_db !== null && !(snr_db >= limit_db);
      const limit = limit_db === null ? 'no limit' : `limit ${limit_db.toFixed(1)} dB`;
      const on = providers.length > 1 ? ` on ${provider}` : '';
      const what = `${brief(variant)}${on}, golden vector ${golden + 1}, ${brief(output)}: ${decibels(snr_db)} (${limit})`;
      check(wrong ? 'failed' : 'passed', wrong ? 'failed' : 'passed', what);
    }
  } else if (step === 'left') {
    check('left', 'not used', `${brief(variant)}: ${reason}`);
  }
}

async function open(source) {
  leaveLive();
  await session?.close();
  session = null;
  for (const id of ['checks', 'facts', 'items']) $(id).replaceChildren();
  for (const id of ['problem', 'times', 'found', 'none', 'canvas', 'rate']) $(id).hidden = true;
  $('hint').hidden = false;
  $('hint').textContent = 'The bundle is being checked.';
  $('stage').className = 'empty';
  for (const id of SOURCES) $(id).disabled = true;
  $('summary').textContent = 'Opening the bundle …';
  document.body.dataset.state = 'opening';
  const began = performance.now();
  try {
    session = await Session.open(source, {providers, onprogress: report});
    $('summary').textContent = `${brief(session.variant)} on ${session.engine}: verified on this device`;
    fact('engine', session.engine);
    fact('core', session.core);
    fact('opened, checked and loaded in', ms(performance.now() - began));
    take(session.manifest.card);
    document.body.dataset.state = 'ready';
  } catch (problem) {
    refuse(problem);
    $('summary').textContent = 'The bundle was refused; nothing of it runs.';
    $('hint').textContent = 'No bundle is open, so nothing can be predicted.';
    check('failed', 'refused', 'see above');
    document.body.dataset.state = 'refused';
  }
}

// Show the controls for what a card takes, a sound or a picture.
function take(card) {
  words = Object.values(card?.inputs ?? {}).some(({kind}) => kind === 'audio') ? FOR_SOUNDS : FOR_PICTURES;
  for (const id of ['choose', 'photo', 'camera']) $(id).hidden = words === FOR_SOUNDS;
  $('microphone').hidden = words !== FOR_SOUNDS;
  $('picture-heading').textContent = words.heading;
  $('hint').textContent = words.hint;
  for (const id of SOURCES) $(id).disabled = false;
}

function refuse(problem) {
  $('problem').textContent = problem instanceof EdgeKitError ? problem.message : `this page failed: ${problem}`;
  $('problem').hidden = false;
}

async function predict(file) {
  leaveLive();
  $('busy').textContent = 'Working …';
  $('problem').hidden = true;
  document.body.dataset.state = 'predicting';
  try {
    const found = await session.predict(file);
    await draw(file, found);
    show(found);
    document.body.dataset.state = 'predicted';
  } catch (problem) {
    refuse(problem);
    document.body.dataset.state = 'failed';
  }
  $('busy').textContent = '';
}

function stage(width, height, scale) {
  const canvas = $('canvas');
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.hidden = false;
  $('hint').hidden = true;
  $('stage').className = '';
  return canvas;
}

async function draw(file, found) {
  const {width, height, items} = found;
  const bitmap = await createImageBitmap(file), scale = Math.min(1, SIDE_LIMIT / Math.max(width, height));
  const canvas = stage(width, height, scale);
  canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  drawItems(canvas, found, scale);
  canvas.setAttribute('aria-label', `The photograph. Found: ${named(items)}`);
}

// Show times and the list of what was found.
function show(found, colours) {
  for (const stage of STAGES) $(`time-${stage}`).textContent = ms(found.times_ms[stage]);
  $('times').hidden = false;
  const {rows, left} = rowsOf(found, colours);
  $('items').replaceChildren(...rows);
  $('found').hidden = rows.length === 0;
  $('none').hidden = rows.length > 0;
  $('more').hidden = left === 0;
  $('more').textContent = `${left} more are not listed.`;
}

// Start the camera or the microphone.
async function goLive() {
  const button = $(words.button);
  $('problem').hidden = true;
  button.disabled = true;
  document.body.dataset.state = 'starting';
  const onend = (problem) => {
    leaveLive();
    refuse(problem);
    document.body.dataset.state = 'failed';
  };
  try {
    live = await (words === FOR_SOUNDS ? Microphone.open(onend) : Camera.open($('video'), onend));
  } catch (problem) {
    onend(problem);
    return;
  } finally {
    button.disabled = session === null;
  }
  if (document.hidden || !session) {  // left while the browser asked
    leaveLive();
    return;
  }
  button.textContent = words.stop;
  if (words === FOR_SOUNDS) listen();
  else watch();
}

function watch() {
  $('video').hidden = false;
  live.run((video) => session.predict(video), (found, {rate, dropped}) => {
    const canvas = stage(found.width, found.height, 1);  // a new size clears it
    drawItems(canvas, found, 1);
    canvas.setAttribute('aria-label', `The camera. Found: ${named(found.items)}`);
    show(found);
    $('rate').textContent = `${rate.toFixed(1)} frames/s; ${dropped} of the camera's frames dropped`;
    $('rate').hidden = false;
    document.body.dataset.state = 'live';
  });
}

function listen() {
  const windows = [];
  live.run((samples, rate, begin) => session.listen(samples, rate, {begin}), (predicted, {dropped_s}) => {
    if (!predicted.length) return;
    windows.push(...predicted);
    windows.splice(0, windows.length - WINDOWS_KEPT);
    const last = windows[windows.length - 1], canvas = stage(1, 1, 1);
    drawTimeline(canvas, windows, $('stage').clientWidth);
    canvas.setAttribute('aria-label', `The microphone. Heard last: ${named(last.items)}`);
    show(last, colourOf);
    $('rate').textContent = `${last.start_s.toFixed(2)} to ${last.end_s.toFixed(2)} s; ${dropped_s.toFixed(1)} s of sound dropped`;
    $('rate').hidden = false;
    document.body.dataset.state = 'live';
  });
}

function leaveLive() {
  if (!live) return;
  live.stop();
  live = null;
  $(words.button).textContent = words.live;
  $('video').hidden = $('canvas').hidden = true;
  $('hint').hidden = false;
  $('stage').className = 'empty';
  document.body.dataset.state = 'ready';
}

$('photo').addEventListener('change', ({target}) => {
  if (target.files[0]) predict(target.files[0]);
  target.value = '';
});
$('other').addEventListener('change', ({target}) => {
  if (target.files[0]) open(target.files[0]);
  target.value = '';
});
for (const id of ['camera', 'microphone']) $(id).addEventListener('click', () => (live ? leaveLive() : goLive()));
document.addEventListener('visibilitychange', () => document.hidden && leaveLive());
addEventListener('pagehide', leaveLive);
for (const kind of ['dragover', 'dragleave', 'drop']) {
  $('stage').addEventListener(kind, (event) => {
    event.preventDefault();
    $('stage').classList.toggle('over', kind === 'dragover');
    const [file] = event.dataTransfer?.files ?? [];
    if (kind === 'drop' && file && session && words === FOR_PICTURES) predict(file);
  });
}

await open('model.edgekit');
if ('serviceWorker' in navigator) {  // https, or this machine
  keep().then(() => {
    $('offline').textContent = 'Nothing is uploaded. The page works without a network from now on.';
    document.body.dataset.offline = 'ready';
  }).catch((problem) => {
    $('offline').textContent = `Nothing is uploaded. The page needs the network each time: ${problem.message}`;
  });
}

// Have the service worker keep the files. Rejects if a file on the host is not the exported one.
async function keep() {
  const registration = await navigator.serviceWorker.register('service-worker.js');
  const worker = registration.active ?? registration.installing ?? registration.waiting;
  await new Promise((done, failed) => {
    const look = () => {
      if (worker.state === 'activated') done();
      if (worker.state === 'redundant') failed(new Error('its files on the host are not those that were exported'));
    };
    worker.addEventListener('statechange', look);
    look();
  });
}
