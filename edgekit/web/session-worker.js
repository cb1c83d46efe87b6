// The worker of edgekit.js: calls of one session, with its progress and its state after each.
import {EdgeKitError} from './core.js';
import {LocalSession} from './session.js';

const session = new LocalSession();

self.onmessage = async ({data: {id, name, values}}) => {
  const onprogress = (progress) => self.postMessage({id, progress, state: session.state()});
  try {
    const value = await session[name](...values, onprogress);
    self.postMessage({id, value, state: session.state()});
  } catch (problem) {
    const kind = problem instanceof EdgeKitError ? 'refused' : 'failed';
    self.postMessage({id, [kind]: String(problem?.message ?? problem), state: session.state()});
  }
};
self.postMessage('ready');
