// The page: a bundle is checked on this device, and predicts photographs and a camera's frames. Texts of a bundle
// are a stranger's: they become text nodes, never markup.
import {Camera} from './camera.js';
import {brief, decibels, drawItems, element, ms, named, rowsOf} from './drawing.js';
import {Session, EdgeKitError} from './edgekit.js';

const $ = (id) => document.getElementById(id);
const SIDE_LIMIT = 1600, STAGES = ['read', 'prepare', 'run', 'decode'];
const providers = document.querySelector('meta[name=providers]').content.split(' ');
let session = null, camera = null;

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
  leaveCamera();
  await session?.close();
  session = null;
  for (const id of ['checks', 'facts', 'items']) $(id).replaceChildren();
  for (const id of ['problem', 'times', 'found', 'none', 'canvas', 'rate']) $(id).hidden = true;
  $('hint').hidden = false;
  $('hint').textContent = 'A photograph can be chosen when the bundle has been checked.';
  $('stage').className = 'empty';
  $('photo').disabled = $('camera').disabled = true;
  $('summary').textContent = 'Opening the bundle …';
  document.body.dataset.state = 'opening';
  const began = performance.now();
  try {
    session = await Session.open(source, {providers, onprogress: report});
    $('summary').textContent = `${brief(session.variant)} on ${session.engine}: verified on this device`;
    fact('engine', session.engine);
    fact('core', session.core);
    fact('opened, checked and loaded in', ms(performance.now() - began));
    $('photo').disabled = $('camera').disabled = false;
    $('hint').textContent = 'Choose a photograph, drop one here, or use the camera. Pictures stay on this device.';
    document.body.dataset.state = 'ready';
  } catch (problem) {
    refuse(problem);
    $('summary').textContent = 'The bundle was refused; nothing of it runs.';
    $('hint').textContent = 'No bundle is open, so pictures cannot be used.';
    check('failed', 'refused', 'see above');
    document.body.dataset.state = 'refused';
  }
}

function refuse(problem) {
  $('problem').textContent = problem instanceof EdgeKitError ? problem.message : `this page failed: ${problem}`;
  $('problem').hidden = false;
}

async function predict(file) {
  leaveCamera();
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
function show(found) {
  for (const stage of STAGES) $(`time-${stage}`).textContent = ms(found.times_ms[stage]);
  $('times').hidden = false;
  const {rows, left} = rowsOf(found);
  $('items').replaceChildren(...rows);
  $('found').hidden = rows.length === 0;
  $('none').hidden = rows.length > 0;
  $('more').hidden = left === 0;
  $('more').textContent = `${left} more are not listed.`;
}

async function useCamera() {
  $('problem').hidden = true;
  $('camera').disabled = true;
  document.body.dataset.state = 'starting';
  try {
    camera = await Camera.open($('video'), (problem) => {
      leaveCamera();
      refuse(problem);
      document.body.dataset.state = 'failed';
    });
  } catch (problem) {
    refuse(problem);
    document.body.dataset.state = 'failed';
    return;
  } finally {
    $('camera').disabled = session === null;
  }
  if (document.hidden || !session) {  // left while the browser asked
    leaveCamera();
    return;
  }
  $('camera').textContent = 'Stop the camera';
  $('video').hidden = false;
  camera.run((video) => session.predict(video), (found, {rate, dropped}) => {
    const canvas = stage(found.width, found.height, 1);  // a new size clears it
    drawItems(canvas, found, 1);
    canvas.setAttribute('aria-label', `The camera. Found: ${named(found.items)}`);
    show(found);
    $('rate').textContent = `${rate.toFixed(1)} frames/s; ${dropped} of the camera's frames dropped`;
    $('rate').hidden = false;
    document.body.dataset.state = 'live';
  });
}

function leaveCamera() {
  if (!camera) return;
  camera.stop();
  camera = null;
  $('camera').textContent = 'Use the camera';
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
$('camera').addEventListener('click', () => (camera ? leaveCamera() : useCamera()));
document.addEventListener('visibilitychange', () => document.hidden && leaveCamera());
addEventListener('pagehide', leaveCamera);
for (const kind of ['dragover', 'dragleave', 'drop']) {
  $('stage').addEventListener(kind, (event) => {
    event.preventDefault();
    $('stage').classList.toggle('over', kind === 'dragover');
    const [file] = event.dataTransfer?.files ?? [];
    if (kind === 'drop' && file && session) predict(file);
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
