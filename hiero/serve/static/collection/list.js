// The list of videos, filtered, sorted and paged by the server, and the jobs that process them.
import { getJson, sendJson, thumbnailUrl } from "../api.js";
import { $ } from "../dom.js";
import { formatTime } from "../format.js";
import { createCard, createElement, formatCount } from "../legacy.js";

const NUM_LISTED = 60;  // videos per page
const TYPING_DELAY_MS = 200;
const JOBS_INTERVAL_MS = 1500;
const DESCENDING = { added: false, name: false, length: true, steps: true, state: false };  // default order of each key

export class VideoList {
  constructor(onError) {
    this.onError = onError;
    this.videos = [];
    this.total = 0;
    this.request = 0;  // number of the last request; earlier responses are ignored
    this.jobs = new Map();
    this.timer = 0;
    let typing = 0;
    $("filter").oninput = () => { clearTimeout(typing); typing = setTimeout(() => this.load(), TYPING_DELAY_MS); };
    $("sort").onchange = () => this.load();
    $("more").onclick = () => this.load(this.videos.length);
  }

  async show(server, me) {
    this.server = server; this.canEdit = me.role !== "view";
    $("list").hidden = false;
    $("upload").hidden = !server.uploads || !this.canEdit;
    $("learning").hidden = !server.words || !this.canEdit;
    await this.load();
    await this.loadJobs();
  }

  hide() { clearTimeout(this.timer); this.timer = 0; }

  // Loads a page. The first one replaces the list.
  async load(offset = 0) {
    const request = ++this.request, sort = $("sort").value;
    const query = new URLSearchParams({ q: $("filter").value.trim(), sort, descending: DESCENDING[sort], offset, n: NUM_LISTED });
    try {
      const { total, videos } = await getJson(`videos?${query}`);
      if (request !== this.request) return;
      this.total = total;
      this.videos = offset ? [...this.videos, ...videos] : videos;
      this.render();
    } catch (error) { this.onError(error); }
  }

  render() {
    $("videos").replaceChildren(...this.videos.map(video => createCard(
      `#v=${video.id}`, video.read && video.pictures ? thumbnailUrl(video.id, 1) : null, video.name, describe(video, this.jobs.get(video.id)))));
    $("more").hidden = this.videos.length >= this.total;
    const filter = $("filter").value.trim();
    $("list-status").textContent = this.total ? `Showing ${this.videos.length} of ${formatCount(this.total, "video")}${filter ? ` matching “${filter}”` : ""}` : filter ? `No videos match “${filter}”.` : "There are no videos yet.";
  }

  // Shows the queue and updates it until it is empty.
  async loadJobs() {
    clearTimeout(this.timer);
    try {
      const jobs = await getJson("jobs"), wasActive = this.isActive;
      const active = jobs.filter(job => ["waiting", "running"].includes(job.state)), failed = jobs.filter(job => job.state === "failed").slice(-5);
      this.isActive = active.length > 0;
      this.jobs = new Map(active.map(job => [job.video, job]));
      $("queue").hidden = !active.length && !failed.length;
      $("queue-title").textContent = active.length ? `Queue (${active.length})` : "Queue";
      $("jobs").replaceChildren(...[...active, ...failed].map(job => this.createJob(job)));
      if (wasActive && !this.isActive) await this.load();
      else if (this.isActive) this.render();
      if (this.isActive && !$("list").hidden) this.timer = setTimeout(() => this.loadJobs(), JOBS_INTERVAL_MS);
    } catch (error) { this.onError(error); }
  }

  createJob(job) {
    const row = createElement("li", {}, createElement("strong", { textContent: job.name }), ` ${job.state}${job.user ? ` · started by ${job.user}` : ""}${job.message ? ` · ${job.message}` : ""} `);
    if (job.state === "running") {
      const bar = createElement("progress", { max: job.duration_s || 1, "aria-label": `Processing ${job.name}` });
      if (job.duration_s) bar.value = job.done_s;
      row.append(bar, " ");
    }
    if (this.canEdit) {
      const isFailed = job.state === "failed";
      const button = createElement("button", { type: "button", textContent: isFailed ? "Try again" : "Stop", "aria-label": `${isFailed ? "Try again" : "Stop"}: ${job.name}` });
      button.onclick = async () => {
        button.disabled = true;
        try { await sendJson(isFailed ? "POST" : "DELETE", isFailed ? `jobs/${job.id}/retry` : `jobs/${job.id}`); await this.loadJobs(); } catch (error) { this.onError(error); }
      };
      row.append(button);
    }
    return row;
  }
}

function describe(video, job) {
  const state = job ? (job.state === "running" ? `processing${job.duration_s ? ` ${Math.round(100 * job.done_s / job.duration_s)} %` : ""}` : "waiting in the queue") : video.read ? "ready" : "not processed yet";
  return [
    video.duration_s ? formatTime(video.duration_s) : "", video.num_steps ? formatCount(video.num_steps, "step") : "", state, video.num_files > 1 ? `${video.num_files} files` : "",
    video.edited ? "edited" : "", video.playable ? "" : "no video file", video.editing.length ? `being edited by ${video.editing.join(", ")}` : "",
  ].filter(Boolean).join(" · ");
}
