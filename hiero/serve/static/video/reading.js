// @ts-check
// A video that has not been processed yet: the offer to do so, and the progress with the time left.
import { getJson, sendJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { formatTime } from "../format.js";
import { withErrors } from "../shell.js";
import { store } from "../store.js";
import { t } from "../texts.js";

export class Reading {
  /** @param {HTMLElement} root @param {() => void} onDone */
  constructor(root, onDone) {
    this.root = root;
    this.onDone = onDone;
    /** @type {EventSource | null} */
    this.events = null;
    this.id = "";
  }

  hide() {
    this.events?.close();
    this.events = null;
    this.root.hidden = true;
  }

  /** Offers to process a video, or shows the job that does. @param {string} id */
  async show(id) {
    this.id = id;
    this.offer(t("reading.not_yet"));
    const jobs = await getJson("jobs");
    const job = jobs.find((/** @type {any} */ { video, state }) => video === id && ["waiting", "running"].includes(state));
    if (job && this.id === id) this.watch(job.id);
  }

  /** @param {string} text */
  offer(text) {
    this.events?.close();
    this.root.hidden = false;
    const start = h("button", { id: "read", type: "button", class: "button primary", hidden: !store.canEdit }, icon("play"), t("reading.start"));
    start.onclick = () => withErrors(async () => this.watch((await sendJson("POST", `videos/${this.id}/read`)).id));
    fill(this.root, h("p", { class: "grow" }, text), start);
  }

  /** @param {string} job */
  watch(job) {
    const id = this.id, started = Date.now(), events = new EventSource(`api/jobs/${job}/events`);
    this.events?.close();
    this.events = events;
    const text = h("p", { id: "reading-text", class: "grow" }, t("reading.waiting")), bar = h("progress", { "aria-label": t("reading.progress") });
    const stop = h("button", { id: "stop", type: "button", class: "button", hidden: !store.canEdit }, t("reading.stop"));
    stop.onclick = () => withErrors(() => sendJson("DELETE", `jobs/${job}`));
    this.root.hidden = false;
    fill(this.root, text, stop, bar);
    /** @type {number | null} */
    let first = null;
    events.onmessage = event => {
      const { state, done_s, duration_s, message } = JSON.parse(event.data);
      first ??= done_s;
      if (duration_s) { bar.max = duration_s; bar.value = done_s; } else bar.removeAttribute("value");  // without an end it only moves
      if (state === "running") text.textContent = describeProgress(done_s, duration_s, remainingS(done_s - (first ?? 0), duration_s - done_s, (Date.now() - started) / 1000));
      if (state === "done") { this.hide(); this.onDone(); }
      if (state === "failed" || state === "cancelled") this.offer(message || t("reading.stopped"));
    };
    events.onerror = () => { events.close(); if (this.id === id) this.offer(t("reading.lost")); };
  }
}

/**
 * Seconds left at the speed so far, or null while too little is known.
 * @param {number} done @param {number} left @param {number} passed
 */
export const remainingS = (done, left, passed) => done > 0 && passed > 2 ? left * passed / done : null;

/** @param {number} done @param {number} duration @param {number | null} left */
function describeProgress(done, duration, left) {
  const progress = duration ? t("reading.of", { done: formatTime(done), total: formatTime(duration) }) : t("reading.done", { done: formatTime(done) });
  return left === null || !duration ? progress : `${progress} · ${t("reading.left", { time: formatTime(left) })}`;
}
