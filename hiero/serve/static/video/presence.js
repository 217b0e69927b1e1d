// @ts-check
// Who else edits a video, and the history of its edits.
import { changeOptions, fetchJson, getJson, sendJson } from "../api.js";
import { fill, h } from "../dom.js";
import { withErrors } from "../shell.js";
import { store } from "../store.js";
import { t } from "../texts.js";

const PRESENCE_MS = 15000;

/** Regularly tells the server that a video is open for editing, and shows who else has it open. */
export class Presence {
  /** @type {string | null} */ video = null;
  timer = 0;

  constructor(/** @type {HTMLElement} */ root) { this.root = root; }

  watch(/** @type {string} */ video) {
    this.stop();
    if (!store.canEdit) return;
    this.video = video;
    const beat = async () => {
      try {
        const { editing } = await sendJson("POST", `videos/${video}/presence`);
        if (this.video !== video) return;
        const others = editing.filter((/** @type {string} */ name) => name !== store.me?.name);
        this.root.textContent = others.length ? t("presence.others", { n: others.length, names: others.join(", ") }) : "";
      } catch { /* try again next time */ }
      if (this.video === video) this.timer = setTimeout(beat, PRESENCE_MS);
    };
    beat();
  }

  stop() {
    clearTimeout(this.timer);
    this.video = null;
    this.root.textContent = "";
  }
}

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
