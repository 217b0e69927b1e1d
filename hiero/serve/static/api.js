// The JSON API of the server, and helpers for times, colours and elements.

// An error response: its message, its status, and the current version of the document, if there is one.
export class ServerError extends Error {
  constructor(message, status, version) { super(message); this.status = status; this.version = version; }
}

// The JSON of a response and its version (the ETag, or null).
export async function fetchJson(path, options = {}) {
  const response = await fetch(`api/${path}`, options);
  const body = response.headers.get("content-type")?.includes("json") ? await response.json() : null, version = response.headers.get("etag");
  if (!response.ok) throw new ServerError(body?.error || "Something went wrong on the server. Please try again.", response.status, version);
  return { body, version };
}

export const getJson = async (path, options) => (await fetchJson(path, options)).body;

export const sendJson = (method, path, body) => getJson(path, jsonOptions(method, body));

// Options of fetch for a change of a document. The server answers 412 if the document has another version by now.
export const changeOptions = (method, body, version) => {
  const options = jsonOptions(method, body);
  if (version) options.headers["if-match"] = version;
  return options;
};

// A probability as a whole percentage.
export const percent = probability => probability < 0.01 ? "< 1 %" : `${Math.round(100 * probability)} %`;

const jsonOptions = (method, body) => ({ method, headers: { "content-type": "application/json" }, body: body === undefined ? undefined : JSON.stringify(body) });

// A tile of the similarity matrix with one byte per cell, or null if there is none.
export async function fetchTile(id, zoom, row, column) {
  const response = await fetch(`api/videos/${id}/similarity/${zoom}/${row}/${column}`);
  if (!response.ok) return null;
  const header = name => Number(response.headers.get(name));
  return { rows: header("x-rows"), columns: header("x-columns"), cells: header("x-cells"), values: new Uint8Array(await response.arrayBuffer()) };
}

export const thumbnailUrl = (id, time) => `api/videos/${id}/picture?t=${Math.max(0, time).toFixed(1)}`;

// A number with its noun: "1 step", "2 steps".
export const formatCount = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// The name of a step, or its number, which counts from 1.
export const stepTitle = (label, number) => label || `Step ${number}`;

const LEVEL_NAMES = [["Steps"], ["Coarse steps", "Fine steps"], ["Coarse steps", "Medium steps", "Fine steps"]];
export const levelName = (level, numLevels) => LEVEL_NAMES[numLevels - 1]?.[level] ?? `Level ${level + 1} of ${numLevels}`;

// m:ss, or h:mm:ss for an hour or more.
export function formatTime(seconds) {
  const s = Math.round(seconds), m = Math.floor(s / 60);
  return (m < 60 ? `${m}` : `${Math.floor(m / 60)}:${String(m % 60).padStart(2, "0")}`) + ":" + String(s % 60).padStart(2, "0");
}

// Hues are a golden angle apart, so that neighbouring numbers differ.
export const threadColour = thread => `hsl(${(thread * 137.508 + 205) % 360} 52% ${77 - (thread % 3) * 6}%)`;

export function createCard(href, picture, title, details) {
  const link = createElement("a", { href });
  if (picture) { const image = createElement("img", { src: picture, alt: "", loading: "lazy" }); image.onerror = () => image.remove(); link.append(image); }
  link.append(createElement("div", {}, createElement("strong", { textContent: title }), createElement("br"), createElement("small", { textContent: details })));
  return createElement("li", {}, link);
}

export const $ = id => document.getElementById(id);

export function createElement(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("aria-") || key === "role") element.setAttribute(key, value); else element[key] = value;
  }
  element.append(...children);
  return element;
}
