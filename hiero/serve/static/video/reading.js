// @ts-check
// A video that has not been processed yet: the offer to do so, and the progress with the time left.
import { getJson, sendJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { formatLeft, formatTime, waitingText } from "../format.js";
import { withErrors } from "../shell.js";
import { store } from "../store.js";
import { t } from "../texts.js";

export class Reading {
  /** @type {EventSource | null} */ events = null;
  id = "";

  /** @param {HTMLElement} root @param {() => void} onDone */
  constructor(root, onDone) {
    this.root = root;
    this.onDone = onDone;
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

  offer(/** @type {string} */ text) {
    this.events?.close();
    this.root.hidden = false;
    const start = h("button", { id: "read", type: "button", class: "button primary", hidden: !store.canEdit }, icon("play"), t("reading.start"));
    start.onclick = () => withErrors(async () => this.watch((await sendJson("POST", `videos/${this.id}/read`)).id));
    fill(this.root, h("p", { class: "grow" }, text), start);
  }

  watch(/** @type {string} */ job) {
    const { id } = this, events = new EventSource(`api/jobs/${job}/events`);
    this.events?.close();
    this.events = events;
    const text = h("p", { id: "reading-text", class: "grow" }, t("reading.queue")), bar = h("progress", { "aria-label": t("reading.progress") });
    const stop = h("button", { id: "stop", type: "button", class: "button", hidden: !store.canEdit }, t("reading.stop"));
    stop.onclick = () => withErrors(() => sendJson("DELETE", `jobs/${job}`));
    this.root.hidden = false;
    fill(this.root, text, stop, bar);
    events.onmessage = event => {
      const { state, position, done_s, duration_s, left_s, message } = JSON.parse(event.data);
      if (state === "waiting") text.textContent = waitingText(position, left_s);
      if (state === "running" && duration_s) { bar.max = duration_s; bar.value = done_s; } else bar.removeAttribute("value");  // without an end it only moves
      const progress = duration_s ? t("reading.of", { done: formatTime(done_s), total: formatTime(duration_s) }) : t("reading.done", { done: formatTime(done_s) });
      if (state === "running") text.textContent = [progress, formatLeft(left_s)].filter(Boolean).join(" · ");
      if (state === "done") { this.hide(); this.onDone(); }
      if (state === "failed" || state === "cancelled") this.offer(message || t("reading.stopped"));
    };
    events.onerror = () => { events.close(); if (this.id === id) this.offer(t("reading.lost")); };
  }
}
