// Other editors of a video, and the edit history.
import { changeOptions, fetchJson, getJson, sendJson } from "../api.js";
import { $ } from "../dom.js";
import { createElement, formatCount } from "../legacy.js";

const PRESENCE_MS = 15000;

// Regularly tells the server that this video is open for editing, and shows who else has it open.
export class Presence {
  constructor() { this.timer = 0; this.video = null; }

  watch(video, me) {
    this.stop();
    if (me.role === "view") return;
    this.video = video;
    const beat = async () => {
      try {
        const { editing } = await sendJson("POST", `videos/${video}/presence`), others = editing.filter(name => name !== me.name);
        if (this.video !== video) return;
        $("editing").textContent = others.length ? `${others.join(", ")} ${others.length > 1 ? "are" : "is"} also editing this video.` : "";
      } catch { /* try again next time */ }
      if (this.video === video) this.timer = setTimeout(beat, PRESENCE_MS);
    };
    beat();
  }

  stop() { clearTimeout(this.timer); this.video = null; $("editing").textContent = ""; }
}

// Lists the saves of a video, each with a button that restores it.
export async function showHistory(id, { canEdit, version, onRestored, onError }) {
  try {
    const saves = await getJson(`videos/${id}/history`);
    $("saves").replaceChildren(...saves.map((save, i) => {
      const when = new Date(save.saved_at * 1000).toLocaleString(), what = save.version ? formatCount(save.num_steps, "step") : "all edits discarded";
      const row = createElement("li", {}, `${when} · ${save.user || "file next to the video"} · ${what} `);
      if (canEdit && i) {
        const button = createElement("button", { type: "button", textContent: "Restore", "aria-label": `Restore the version of ${when}` });
        button.onclick = async () => {
          try { await fetchJson(`videos/${id}/history/${save.id}`, changeOptions("POST", undefined, version())); onRestored(); } catch (error) { onError(error); }
        };
        row.append(button);
      }
      return row;
    }));
    if (!saves.length) $("saves").replaceChildren(createElement("li", { textContent: "No edits have been saved yet." }));
  } catch (error) { onError(error); }
}
