// @ts-check
// Loading the steps of a video, and saving edits one after the other, with undo, redo, and a choice when someone else has
// edited the video.
import { changeOptions, fetchJson, getJson } from "../api.js";
import { $, h } from "../dom.js";
import { withErrors } from "../shell.js";
import { t } from "../texts.js";
import { mergeSpeech } from "./steps.js";

/** The edited steps with their version, or else the steps that were found, with the version null. @param {string} id */
export async function fetchSteps(id) {
  const { edited, truth } = await getJson(`videos/${id}`);
  /** @type {{ body: Hierarchy, version: string | null }} */
  const { body: hierarchy, version } = await fetchJson(`videos/${id}/${edited ? "edits" : "steps"}`);
  const [speech, annotated] = await Promise.all([
    getJson(`videos/${id}/transcript`), truth ? getJson(`videos/${id}/truth`) : [],
  ]);
  /** @type {ExtraRow[]} */
  const extraRows = [];
  if (speech.length) extraRows.push({ name: t("row.speech"), kind: "speech", steps: mergeSpeech(speech, hierarchy.duration_s) });
  if (annotated.length) extraRows.push({ name: t("row.annotated"), kind: "truth", steps: annotated.map((/** @type {any} */ step, /** @type {number} */ thread) => ({ ...step, thread })) });
  return { hierarchy, version: edited ? version : null, extraRows };
}

export class Saves {
  id = "";
  /** @type {string | null} */ version = null;
  /** @type {Hierarchy | null} */ hierarchy = null;
  /** @type {Hierarchy[]} */ past = [];
  /** @type {Hierarchy[]} */ future = [];
  /** @type {(() => void) | null} cancels the choice between two versions */ endConflict = null;
  /** @type {Promise<unknown>} */ queue = Promise.resolve();

  /** @param {{ onSaved: (hierarchy: Hierarchy) => void, onChange: () => void, reload: () => Promise<void>, notify: (text: string) => void }} events */
  constructor(events) {
    this.events = events;
  }

  /** @param {string} id of the video @param {string | null} version of its edits, null without edits @param {Hierarchy | null} hierarchy */
  open(id, version, hierarchy) {
    this.endConflict?.();
    Object.assign(this, { id, version, hierarchy, past: [], future: [], endConflict: null });
    this.events.onChange();
  }

  get isEdited() { return this.version !== null; }

  /** @param {() => Promise<void>} work runs on top of all earlier saves */
  enqueue(work) {
    this.queue = this.queue.then(() => withErrors(work));
    return this.queue;
  }

  /** @param {(hierarchy: Hierarchy) => Hierarchy} change */
  apply(change) {
    return this.enqueue(async () => {
      const before = this.hierarchy;
      if (!before) return;
      if (await this.save(change(before))) { this.past.push(before); this.future = []; this.events.onChange(); }
    });
  }

  undo() { return this.step(this.past, this.future); }
  redo() { return this.step(this.future, this.past); }

  /** @param {Hierarchy[]} from @param {Hierarchy[]} to */
  step(from, to) {
    return this.enqueue(async () => {
      const target = from.at(-1), before = this.hierarchy;
      if (!target || !before || !await this.save(target)) return;
      from.pop();
      to.push(before);
      this.events.onChange();
    });
  }

  discard() {
    return this.enqueue(async () => {
      const { id } = this;
      const isSent = await this.send(version => fetchJson(`videos/${id}/edits`, changeOptions("DELETE", undefined, version)));
      if (!isSent || this.id !== id) return;
      this.version = null;
      await this.events.reload();
      this.events.notify(t("edit.discarded"));
    });
  }

  /** Returns whether it was saved. @param {Hierarchy} hierarchy */
  async save(hierarchy) {
    const { id } = this;
    const sent = await this.send(version => fetchJson(`videos/${id}/edits`, changeOptions("PUT", hierarchy, version)));
    if (!sent || this.id !== id) return false;  // another video is open now
    this.hierarchy = { ...hierarchy, levels: sent.levels };  // as the server has marked it
    this.events.onSaved(this.hierarchy);
    return true;
  }

  // Sends a change. If someone else has changed the edits in the meantime, the user chooses a version. Returns the
  // response, or null if the change was given up.
  /** @param {(version: string | null) => Promise<Versioned>} request */
  async send(request) {
    const { id } = this;
    for (let { version } = this; ;) {
      try {
        const response = await request(version);
        if (this.id === id) this.version = response.version;
        return response.body ?? {};
      } catch (error) {
        const { status, version: theirs } = /** @type {ServerError} */ (error);
        if (status !== 412) throw error;
        version = theirs;
        if (await this.chooseMine(theirs)) continue;
        this.version = theirs;
        await this.events.reload();
        this.events.notify(t("edit.took_theirs"));
        return null;
      }
    }
  }

  /** Asks which version to keep. Fails if another video is opened instead. @param {string | null} theirVersion */
  async chooseMine(theirVersion) {
    const dialog = $("conflict");
    $("conflict-text").textContent = t(theirVersion === null ? "conflict.discarded" : "conflict.edited");
    dialog.hidden = false;
    $("take-theirs").focus();
    try {
      return await new Promise((resolve, reject) => {
        $("keep-mine").onclick = () => resolve(true);
        $("take-theirs").onclick = () => resolve(false);
        this.endConflict = () => reject(new Error(t("conflict.lost")));
      });
    } finally { dialog.hidden = true; this.endConflict = null; }
  }
}

export const createConflictDialog = () => h("div", { id: "conflict", class: "notice warn", role: "alertdialog", "aria-labelledby": "conflict-text", hidden: true },
  h("p", { id: "conflict-text", class: "grow" }),
  h("button", { id: "keep-mine", type: "button", class: "button", title: t("conflict.keep_hint") }, t("conflict.keep")),
  h("button", { id: "take-theirs", type: "button", class: "button primary", title: t("conflict.take_hint") }, t("conflict.take")));
