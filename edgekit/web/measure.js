// The page of `edgekit devices --browser`: golden vectors and times of each variant and engine on this device. The
// report is signed with the key behind the # of the address, which browsers send to nobody.
import {Session, EdgeKitError} from './edgekit.js';
import {brief, decibels, element, ms} from './drawing.js';

const $ = (id) => document.getElementById(id);
const TEXT_CHARACTERS = 200;
const key = location.hash.slice(1);
let checked = '';  // digest of the bundle
let left = false;  // whether the page was hidden: browsers slow hidden pages down

const plain = (text) => Array.from(String(text).replace(/[\p{C}\p{Z}]+/gu, ' ')).slice(0, TEXT_CHARACTERS).join('');

async function fetched(name) {
  const response = await fetch(name);
  if (!response.ok) throw new EdgeKitError(`${name}: the server answered ${response.status}`);
  return response;
}

// Return what the browser tells of the device.
async function described() {
  const agent = navigator.userAgent, data = navigator.userAgentData;
  const told = await data?.getHighEntropyValues(['model', 'platformVersion', 'fullVersionList']).catch(() => null);
  const brand = (told?.fullVersionList ?? []).filter(({brand}) => !/not.*brand/i.test(brand)).pop();
  const [, platform = 'unknown'] = /\(([^)]*)\)/.exec(agent) ?? [];
  const [program = 'unknown'] = /(Firefox|FxiOS|CriOS|EdgiOS|Version)\/[\d.]+/.exec(agent) ?? [];
  return {
    model: plain(told?.model || platform),
    system: plain(data ? `${data.platform} ${told?.platformVersion ?? ''}`.trim() || 'unknown' : platform),
    browser: plain(brand ? `${brand.brand} ${brand.version}` : program),
    cores: navigator.hardwareConcurrency ?? null,
  };
}

function row(kind, verdict, what) {
  const made = element('li', kind, '');
  made.append(element('span', 'verdict', verdict), element('span', 'what', what));
  $('checks').append(made);
}

async function measured(bundle, variant, provider, seconds) {
  const result = {variant, provider, engine: provider, problem: '', golden: [], bench: null};
  const onprogress = ({step, session: opened}) => {
    if (step === 'checked') checked = opened.digest;
  };
  let session = null;
  $('busy').textContent = `${brief(variant)}: loading`;
  try {
    session = await Session.open(bundle, {variant, strict: true, providers: [provider], onprogress});
    result.engine = plain(session.engine);
    const bench = await session.bench({seconds, onprogress: ({seconds: passed}) => {
      $('busy').textContent = `${brief(variant)}: ${passed.toFixed(0)} of ${seconds} s`;
    }});
    result.bench = bench;
    result.golden = session.golden.map(({golden, output, snr_db}) => (
      {golden, output, snr_db: snr_db === Infinity ? 'equal' : snr_db}));
    const lowest = Math.min(...session.golden.map(({snr_db}) => snr_db));
    row('passed', 'passed', `${brief(variant)}, ${session.engine}: ${decibels(lowest)}, `
      + `p50 ${ms(bench.p50_ms)}, p95 ${ms(bench.p95_ms)}`);
  } catch (problem) {
    if (!(problem instanceof EdgeKitError)) throw problem;
    result.problem = plain(problem.message);
    row('left', 'not used', `${brief(variant)} on ${provider}: ${problem.message}`);
  }
  await session?.close();
  return result;
}

async function send(report) {
  const text = new TextEncoder(), body = text.encode(JSON.stringify(report));
  const hmac = await crypto.subtle.importKey('raw', text.encode(key), {name: 'HMAC', hash: 'SHA-256'}, false, ['sign']);
  const signature = new Uint8Array(await crypto.subtle.sign('HMAC', hmac, body));
  const hex = Array.from(signature, (byte) => byte.toString(16).padStart(2, '0')).join('');
  const response = await fetch('report', {method: 'POST', headers: {'EdgeKit-Signature': hex}, body});
  if (!response.ok) throw new EdgeKitError(`The report was refused: ${(await response.json()).problem}`);
}

async function start({seconds, variants, providers}, device) {
  $('start').disabled = true;
  $('problem').hidden = true;
  $('checks').replaceChildren();
  left = document.hidden;
  document.body.dataset.state = 'measuring';
  const lock = await navigator.wakeLock?.request('screen').catch(() => null);
  try {
    const bundle = await (await fetched('model.edgekit')).blob(), results = [];
    for (const variant of variants) {
      for (const provider of providers) {
        results.push(await measured(bundle, variant, provider, seconds));
        if (left) throw new EdgeKitError('The page was hidden, and browsers slow hidden pages down. Start again.');
      }
    }
    $('busy').textContent = 'Sending …';
    await send({bundle: checked, device, results});
    $('busy').textContent = 'Sent. This page can be closed.';
    document.body.dataset.state = 'sent';
  } catch (problem) {
    $('problem').textContent = problem instanceof EdgeKitError ? problem.message : `this page failed: ${problem}`;
    $('problem').hidden = false;
    $('busy').textContent = '';
    $('start').disabled = false;
    document.body.dataset.state = 'failed';
  }
  await lock?.release();
}

document.addEventListener('visibilitychange', () => { left ||= document.hidden; });
try {
  const [plan, device] = await Promise.all([fetched('measure.json').then((response) => response.json()), described()]);
  const count = plan.variants.length * plan.providers.length;
  $('summary').textContent = `${brief(plan.title)}: ${count} × ${plan.seconds} s`;
  for (const [name, value] of Object.entries(device)) {
    const line = document.createElement('div');
    line.append(element('dt', '', name), element('dd', '', value ?? 'unknown'));
    $('facts').append(line);
  }
  $('start').addEventListener('click', () => start(plan, device));
  $('start').disabled = false;
  document.body.dataset.state = 'ready';
} catch (problem) {
  $('problem').textContent = problem.message;
  $('problem').hidden = false;
  document.body.dataset.state = 'failed';
}
