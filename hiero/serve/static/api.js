// The server's JSON API, and the few words that all parts share.

export async function get(path, options = {}) {
  const answer = await fetch(`api/${path}`, options);
  const body = answer.headers.get("content-type")?.includes("json") ? await answer.json() : null;
  if (!answer.ok) throw new Error(body?.error || (Array.isArray(body?.detail) ? body.detail[0].msg : "the server could not do that"));
  return body;
}

export const send = (method, path, body) =>
  get(path, { method, headers: { "content-type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) });

export async function tile(id, zoom, row, column) {
  const answer = await fetch(`api/videos/${id}/similarity/${zoom}/${row}/${column}`);
  if (!answer.ok) return null;
  const number = name => Number(answer.headers.get(name));
  return { rows: number("x-rows"), columns: number("x-columns"), cells: number("x-cells"), values: new Uint8Array(await answer.arrayBuffer()) };
}

export const pictureOf = (id, time) => `api/videos/${id}/picture?t=${Math.max(0, time).toFixed(1)}`;

export function clock(seconds) {
  const s = Math.round(seconds), m = Math.floor(s / 60);
  return (m < 60 ? `${m}` : `${Math.floor(m / 60)}:${String(m % 60).padStart(2, "0")}`) + ":" + String(s % 60).padStart(2, "0");
}

export const colour = thread => `hsl(${(thread * 137.508 + 205) % 360} 52% ${77 - (thread % 3) * 6}%)`;

export const $ = id => document.getElementById(id);

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("aria-") || key === "role") made.setAttribute(key, value); else made[key] = value;
  }
  made.append(...children);
  return made;
}
