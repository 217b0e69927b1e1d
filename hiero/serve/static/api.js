// @ts-check
// The JSON API of the server.
import { t } from "./texts.js";

/** An error response: its message, its status, and the current version of the document, if there is one. */
export class ServerError extends Error {
  /** @param {string} message @param {number} status @param {string | null} version */
  constructor(message, status, version) {
    super(message);
    this.status = status;
    this.version = version;
  }
}

/**
 * The JSON of a response and its version (the ETag, or null).
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<{ body: any, version: string | null }>}
 */
export async function fetchJson(path, options = {}) {
  const response = await fetch(`api/${path}`, options);
  const isJson = response.headers.get("content-type")?.includes("json");
  const body = isJson ? await response.json() : null, version = response.headers.get("etag");
  if (!response.ok) throw new ServerError(body?.error || t("error.server"), response.status, version);
  return { body, version };
}

/** @param {string} path @param {RequestInit} [options] */
export const getJson = async (path, options) => (await fetchJson(path, options)).body;

/** @param {string} method @param {string} path @param {unknown} [body] */
export const sendJson = (method, path, body) => getJson(path, changeOptions(method, body));

/**
 * Options of fetch for a change of a document. The server answers 412 if the document has another version by now.
 * @param {string} method
 * @param {unknown} [body]
 * @param {string | null} [version]
 * @returns {RequestInit}
 */
export function changeOptions(method, body, version) {
  /** @type {Record<string, string>} */
  const headers = { "content-type": "application/json" };
  if (version) headers["if-match"] = version;
  return { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
}

/**
 * A tile of the similarity matrix with one byte per cell, or null if there is none.
 * @param {string} id @param {number} zoom @param {number} row @param {number} column
 */
export async function fetchTile(id, zoom, row, column) {
  const response = await fetch(`api/videos/${id}/similarity/${zoom}/${row}/${column}`);
  if (!response.ok) return null;
  const header = (/** @type {string} */ name) => Number(response.headers.get(name));
  const values = new Uint8Array(await response.arrayBuffer());
  return { rows: header("x-rows"), columns: header("x-columns"), cells: header("x-cells"), values };
}

/**
 * The address of the picture of a moment.
 * @param {string} id @param {number} time
 */
export const thumbnailUrl = (id, time) => `api/videos/${id}/picture?t=${Math.max(0, time).toFixed(1)}`;

/**
 * The address of a file of a video, for a player.
 * @param {string} id @param {number} part @param {number} numFiles
 */
export const fileUrl = (id, part = 0, numFiles = 1) => `api/videos/${id}/file${numFiles > 1 ? `?part=${part}` : ""}`;
