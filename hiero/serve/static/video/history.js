// @ts-check
// The history of the edits of a video.
import { changeOptions, fetchJson, getJson } from "../api.js";
import { fill, h } from "../dom.js";
import { withErrors } from "../shell.js";
import { store } from "../store.js";
import { t } from "../texts.js";

// Lists the saves of a video, each with a button that restores it.
/** @param {HTMLElement} root @param {string} id @param {{ version: () => string | null, onRestored: () => void }} options */
export function showHistory(root, id, { version, onRestored }) {
  return withErrors(async () => {
    const saves = await getJson(`videos/${id}/history`);
    fill(root, ...saves.map((/** @type {any} */ save, /** @type {number} */ i) => {
      const when = new Date(save.saved_at * 1000).toLocaleString(), what = save.version ? t("count.steps", { n: save.num_steps }) : t("history.discarded");
      const restore = h("button", { type: "button", class: "button", "aria-label": t("history.restore_label", { when }) }, t("history.restore"));
      restore.onclick = () => withErrors(async () => {
        await fetchJson(`videos/${id}/history/${save.id}`, changeOptions("POST", undefined, version()));
        onRestored();
      });
      return h("li", { class: "bar" }, h("span", { class: "grow" }, `${when} · ${save.user || t("history.file")} · ${what}`), store.canEdit && i ? restore : null);
    }));
    if (!saves.length) fill(root, h("li", {}, t("history.empty")));
  });
}
