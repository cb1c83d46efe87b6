// The page: a bundle is checked on this device, and predicts photographs. Texts of a bundle are a stranger's:
// they become text nodes, never markup.
import {Session, EdgeKitError} from './edgekit.js';

const $ = (id) => document.getElementById(id);
const ITEM_LIMIT = 300, ROW_LIMIT = 20, NAME_CHARACTERS = 60, SIDE_LIMIT = 1600;
const COLOURS = ['#e4572e', '#2e86ab', '#3b8f3f', '#9b5de5', '#c9780c', '#d6336c', '#0b8a83', '#5c6bc0'];
const providers = document.querySelector('meta[name=providers]').content.split(' ');
let session = null;

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

const brief = (text) => (text.length > NAME_CHARACTERS ? `${text.slice(0, NAME_CHARACTERS)}…` : text);
const ms = (value) => `${value < 10 ? value.toFixed(1) : value.toFixed(0)} ms`;
const decibels = (db) => (db === Infinity ? 'equal' : `${db.toFixed(1)} dB`);
const coloured = (items) => {  // a colour for each class, in the order in which they were found
  const classes = [...new Set(items.map(({index}) => index))];
  return (index) => COLOURS[classes.indexOf(index) % COLOURS.length];
};

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
  await session?.close();
  session = null;
  for (const id of ['checks', 'facts', 'items']) $(id).replaceChildren();
  for (const id of ['problem', 'times', 'found', 'none', 'canvas']) $(id).hidden = true;
  $('hint').hidden = false;
  $('hint').textContent = 'A photograph can be chosen when the bundle has been checked.';
  $('stage').className = 'empty';
  $('photo').disabled = true;
  $('summary').textContent = 'Opening the bundle …';
  document.body.dataset.state = 'opening';
  const began = performance.now();
  try {
    session = await Session.open(source, {providers, onprogress: report});
    $('summary').textContent = `${brief(session.variant)} on ${session.engine}: verified on this device`;
    fact('engine', session.engine);
    fact('core', session.core);
    fact('opened, checked and loaded in', ms(performance.now() - began));
    $('photo').disabled = false;
    $('hint').textContent = 'Choose a photograph, or drop one here. It stays on this device.';
    document.body.dataset.state = 'ready';
  } catch (problem) {
    refuse(problem);
    $('summary').textContent = 'The bundle was refused; nothing of it runs.';
    $('hint').textContent = 'No bundle is open, so photographs cannot be used.';
    check('failed', 'refused', 'see above');
    document.body.dataset.state = 'refused';
  }
}

function refuse(problem) {
  $('problem').textContent = problem instanceof EdgeKitError ? problem.message : `this page failed: ${problem}`;
  $('problem').hidden = false;
}

async function predict(file) {
  $('busy').textContent = 'Working …';
  $('problem').hidden = true;
  document.body.dataset.state = 'predicting';
  try {
    const found = await session.predict(file);
    await draw(file, found);
    list(found);
    for (const stage of ['prepare', 'run', 'decode']) $(`time-${stage}`).textContent = ms(found.times_ms[stage]);
    $('times').hidden = false;
    document.body.dataset.state = 'predicted';
  } catch (problem) {
    refuse(problem);
    document.body.dataset.state = 'failed';
  }
  $('busy').textContent = '';
}

async function draw(file, {kind, items, width, height}) {
  const canvas = $('canvas'), context = canvas.getContext('2d');
  const bitmap = await createImageBitmap(file), scale = Math.min(1, SIDE_LIMIT / Math.max(width, height));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  canvas.hidden = false;
  $('hint').hidden = true;
  $('stage').className = '';
  const size = Math.max(12, Math.round(canvas.width / 40)), colourOf = coloured(items);
  context.font = `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
  context.textBaseline = 'top';
  context.lineWidth = Math.max(2, size / 8);
  for (const {index, label, score, box} of kind === 'detect' ? items.slice(0, ITEM_LIMIT).reverse() : []) {
    const [x1, y1, x2, y2] = box.map((value) => value * scale), text = `${brief(label)} ${score.toFixed(2)}`;
    context.strokeStyle = context.fillStyle = colourOf(index);
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    const wide = context.measureText(text).width + size * 0.6, high = size * 1.35;
    const left = Math.max(0, Math.min(x1, canvas.width - wide)), top = y1 - high >= 0 ? y1 - high : Math.max(0, y1);
    context.fillRect(left, top, wide, high);
    context.fillStyle = '#ffffff';
    context.fillText(text, left + size * 0.3, top + size * 0.18);
  }
  const names = items.slice(0, ROW_LIMIT).map(({label}) => brief(label)).join(', ');
  canvas.setAttribute('aria-label', `The photograph. Found: ${names || 'nothing'}`);
}

function list({kind, items}) {
  const colourOf = coloured(items);
  $('items').replaceChildren(...items.slice(0, ROW_LIMIT).map(({index, label, score}) => {
    const row = document.createElement('tr'), name = document.createElement('td');
    if (kind === 'detect') {
      const swatch = element('span', 'swatch', '');
      swatch.style.backgroundColor = colourOf(index);
      name.append(swatch);
    }
    name.append(element('bdi', '', brief(label)));
    row.append(name, element('td', 'number', score.toFixed(3)));
    return row;
  }));
  $('found').hidden = items.length === 0;
  $('none').hidden = items.length > 0;
  $('more').hidden = items.length <= ROW_LIMIT;
  $('more').textContent = `${items.length - ROW_LIMIT} more are not listed.`;
}

$('photo').addEventListener('change', ({target}) => {
  if (target.files[0]) predict(target.files[0]);
  target.value = '';
});
$('other').addEventListener('change', ({target}) => {
  if (target.files[0]) open(target.files[0]);
  target.value = '';
});
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
