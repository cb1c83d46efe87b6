// The worker of edgekit.js.
import {answering} from './session.js';

const answer = answering((message) => self.postMessage(message));

self.onmessage = ({data}) => answer(data);
self.postMessage('ready');
