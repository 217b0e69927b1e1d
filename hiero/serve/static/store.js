// @ts-check
// What the whole page shares: the server, the user, and the address, which decides what is shown.

export const store = {
  /** @type {Server | null} */ server: null,
  /** @type {User | null} */ me: null,
  /** Number of the current view; responses for an earlier view are ignored. */
  view: 0,
  /** Whether a search shows a hit without being asked. @param {Hit} hit */
  isLikely: hit => hit.probability >= (store.server?.search_threshold ?? 0),
  get canEdit() { return store.me !== null && store.me.role !== "view"; },
};

// The address after # has the video `v`, the time `t`, the query `q`, earlier queries `also`, `all` for a search of all
// videos, `same` for the same step elsewhere, `report` for the folder report, and the filters of the collection.
/** @returns {Address} */
export const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** The address of a moment of a video. @param {string} id @param {number} time @param {Address} rest */
export const momentAddress = (id, time, rest = {}) => `#${new URLSearchParams({ v: id, t: time.toFixed(1), ...rest })}`;

/** The address with changes; null or "" removes a part. @param {Change} changes */
export function addressWith(changes) {
  const parts = Object.entries({ ...readAddress(), ...changes }).filter(([, value]) => value);
  return `#${new URLSearchParams(/** @type {[string, string][]} */ (parts))}`;
}

/** Changes the address, which shows another view unless it is replaced in silence. @param {Change} changes */
export function changeAddress(changes, replace = false) {
  if (replace) history.replaceState(null, "", addressWith(changes)); else location.hash = addressWith(changes);
}
