// Keeps the page's files, so that it needs no network after the first load. `edgekit export --web` writes the
// two lines below: a name for this set of files, and the sha256 of each.
const VERSION = '';
const FILES = {};

const here = (file) => new URL(file, self.location).href;
const kept = `edgekit ${here('./')} ${VERSION}`;

self.addEventListener('install', (event) => {
  event.waitUntil((async () => {
    const cache = await caches.open(kept);
    try {
      await Promise.all(Object.entries(FILES).map(async ([file, integrity]) => {
        const url = here(file), response = await fetch(url, {integrity, cache: 'no-cache'});
        if (!response.ok) throw new Error(`${file}: ${response.status}`);
        await cache.put(url, response);
      }));
    } catch (problem) {
      await caches.delete(kept);
      throw problem;
    }
  })());
});

self.addEventListener('activate', (event) => {
  const own = `edgekit ${here('./')} `;
  event.waitUntil(caches.keys().then((names) => Promise.all(
    names.filter((name) => name.startsWith(own) && name !== kept).map((name) => caches.delete(name)))));
});

self.addEventListener('fetch', (event) => {
  const url = event.request.url.split(/[?#]/)[0];
  if (event.request.method !== 'GET' || !url.startsWith(here('./'))) return;
  const file = url === here('./') ? here('index.html') : url;
  event.respondWith(caches.open(kept).then((cache) => cache.match(file)).then((found) => found ?? fetch(event.request)));
});
