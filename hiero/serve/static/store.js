// @ts-check
// What the whole page shares: the server, the user, and the address, which decides what is shown.

/**
 * @typedef {{ version: string, models: string[], corpus: boolean, words: boolean, search_threshold: number,
 *   exports: string[], uploads: boolean, folders: boolean, history: boolean }} Server
 * @typedef {{ name: string, role: "view" | "edit" | "admin", sign_in: boolean }} User
 */

export const store = {
  /** @type {Server | null} */ server: null,
  /** @type {User | null} */ me: null,
  /** Number of the current view; responses for an earlier view are ignored. */
  view: 0,
  get canEdit() { return store.me !== null && store.me.role !== "view"; },
};

/**
 * The address after #: the video `v`, the time `t`, the query `q`, earlier queries `also`, `all` for a search of all videos,
 * `same` for the same step elsewhere, `report` for the folder report, and the filters of the collection.
 * @returns {Record<string, string>}
 */
export const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/**
 * The address with changes; null or "" removes a part.
 * @param {Record<string, string | null | undefined>} changes
 */
export function addressWith(changes) {
  const parts = Object.entries({ ...readAddress(), ...changes }).filter(([, value]) => value);
  return `#${new URLSearchParams(/** @type {[string, string][]} */ (parts))}`;
}

/**
 * Changes the address, which shows another view unless it is replaced in silence.
 * @param {Record<string, string | null | undefined>} changes
 */
export function changeAddress(changes, replace = false) {
  if (replace) history.replaceState(null, "", addressWith(changes)); else location.hash = addressWith(changes);
}
