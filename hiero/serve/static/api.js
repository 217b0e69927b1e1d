// @ts-check
// The JSON API of the server.
import { t } from "./texts.js";

/** The JSON of a response and its version. @param {string} path @param {RequestInit} options @returns {Promise<Versioned>} */
export async function fetchJson(path, options = {}) {
  const response = await fetch(`api/${path}`, options);
  const isJson = response.headers.get("content-type")?.includes("json");
  const body = isJson ? await response.json() : null, version = response.headers.get("etag");
  if (!response.ok) throw Object.assign(new Error(body?.error || t("error.server")), { status: response.status, version });
  return { body, version };
}

/** @param {string} path @param {RequestInit} [options] */
export const getJson = async (path, options) => (await fetchJson(path, options)).body;

/** @param {string} method @param {string} path @param {unknown} [body] */
export const sendJson = (method, path, body) => getJson(path, changeOptions(method, body));

/** A change of a document; the server answers 412 if it has another version. @param {string} method @param {unknown} body @param {string | null} version */
export const changeOptions = (method, body, version = null) => ({
  method, headers: { "content-type": "application/json", ...(version ? { "if-match": version } : {}) }, body: JSON.stringify(body),
});

/** The address of the picture of a moment. @param {string} id @param {number} time */
export const thumbnailUrl = (id, time) => `api/videos/${id}/picture?t=${Math.max(0, time).toFixed(1)}`;

/** The address of a file of a video, for a player. @param {string} id @param {number} part @param {number} numFiles */
export const fileUrl = (id, part = 0, numFiles = 1) => `api/videos/${id}/file${numFiles > 1 ? `?part=${part}` : ""}`;
