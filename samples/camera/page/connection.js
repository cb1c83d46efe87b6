// The way to the device: requests with the token, and two WebSockets that come back when they are lost.

const WAITS = [500, 1000, 2000, 4000]; // ms before each new try
const SILENCE = 3000; // ms: the device sends its state at least twice a second

/** The token of #token=..., kept for this tab alone and taken out of the address. */
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token");
}

export const token = takeToken();

/** The response of the device. Throws an Error in the device's own words. */
export async function request(method, path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("The device does not answer. The page goes on trying.");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const error = new Error(said.error || `The device answered ${response.status} to ${method} ${path}`);
  error.status = response.status;
  throw error;
}

/**
 * A WebSocket that is opened again whenever it is lost or silent.
 * heard(data, send) is called with each message, changed(open) when it opens and when it is lost.
 */
export function listen(path, heard, changed, silence = SILENCE) {
  let tries = 0;
  const open = () => {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`);
    socket.binaryType = "arraybuffer";
    let last = performance.now();
    let over = false;
    const watch = setInterval(() => {
      if (silence && performance.now() - last > silence && !document.hidden) end();
    }, 500);
    const end = () => {
      if (over) return;
      over = true;
      clearInterval(watch);
      socket.close();
      changed(false);
      setTimeout(open, WAITS[Math.min(tries++, WAITS.length - 1)]);
    };
    socket.onopen = () => { if (token) socket.send(JSON.stringify({ token })); };
    socket.onmessage = (message) => {
      if (over) return;
      last = performance.now();
      if (tries >= 0) changed(true);
      tries = 0;
      heard(message.data, (text) => { if (socket.readyState === WebSocket.OPEN) socket.send(text); });
    };
    socket.onclose = end;
    socket.onerror = end;
  };
  open();
}
