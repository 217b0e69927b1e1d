// @ts-check
// Jobs of the server: reading, indexing and learning, with the time that is left. They go on when the page is closed.
import { getJson, sendJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { formatLeft, formatSpan, waitingText } from "../format.js";
import { showError, withErrors } from "../shell.js";
import { momentAddress, store } from "../store.js";
import { t } from "../texts.js";

const POLL_MS = 1500;
const NUM_LISTED = 4;  // unfinished jobs that are listed; the others are counted
const NUM_FAILED = 5;
export const LEARNING = "learning";  // stands for the video in the job that learns

export const isActive = (/** @type {Job} */ job) => job.state === "waiting" || job.state === "running";

export const share = (/** @type {Job} */ job) => job.duration_s ? Math.min(1, job.done_s / job.duration_s) : 0;

/** The bar only moves while nobody knows how long a job takes. @param {Job} job @param {string} name */
export const jobBar = (job, name) => h("progress", { max: 1, "aria-label": t("job.progress", { name }), value: job.state === "waiting" || job.duration_s ? share(job) : undefined });

/** What a job is doing, in a few words. @param {Job} job */
export function describeJob(job) {
  if (job.state === "waiting") return waitingText(job.position, job.left_s);
  if (job.message) return job.message;
  const percentage = job.duration_s ? ` ${Math.round(100 * share(job))} %` : " …";
  const doing = `${t(job.video === LEARNING ? "job.learning" : "job.reading")}${percentage}`;
  return [doing, formatLeft(job.left_s)].filter(Boolean).join(" · ");
}

/** The time until all unfinished jobs are done, if it is known. @param {Job[]} jobs */
export const totalLeft = jobs => jobs.reduce((/** @type {number | null} */ most, { left_s }) => left_s === null ? most : Math.max(most ?? 0, left_s), null);

/** The panel that lists jobs. It asks the server again while there are unfinished ones. */
export class JobPanel {
  /** @type {Map<string, Job>} unfinished jobs by video */ jobs = new Map();
  timer = 0;
  isShown = false;

  /** @param {() => void} onChange called after each answer @param {() => void} onEnd called when a job has ended */
  constructor(onChange, onEnd) {
    this.onChange = onChange;
    this.onEnd = onEnd;
    this.title = h("h2", { id: "queue-title" });
    this.left = h("span", { class: "soft small", role: "status", "aria-live": "polite" });
    this.rows = h("ul", { id: "jobs" });
    this.root = h("section", { id: "queue", class: "panel jobs", hidden: true, "aria-labelledby": "queue-title" },
      h("div", { class: "bar" }, this.title, this.left), this.rows);
  }

  show() { this.isShown = true; return this.load(); }

  hide() { this.isShown = false; clearTimeout(this.timer); }

  async load() {
    clearTimeout(this.timer);
    try {
      /** @type {Job[]} */
      const jobs = await getJson("jobs");
      const before = this.jobs.size, active = jobs.filter(isActive);
      this.jobs = new Map(active.map(job => [job.video, job]));
      this.render(active, jobs.filter(job => job.state === "failed").slice(-NUM_FAILED));
      if (active.length < before) this.onEnd();
      this.onChange();
      if (active.length && this.isShown) this.timer = window.setTimeout(() => this.load(), POLL_MS);
    } catch (error) { showError(error); }
  }

  /** @param {Job[]} active @param {Job[]} failed */
  render(active, failed) {
    this.root.hidden = !active.length && !failed.length;
    this.title.textContent = active.length ? t("jobs.active", { n: active.length }) : t("jobs.failed");
    this.left.textContent = active.length > 1 ? formatLeft(totalLeft(active)) : "";
    const hidden = active.length - NUM_LISTED;
    fill(this.rows, ...[...active.slice(0, NUM_LISTED), ...failed].map(job => this.row(job)),
      hidden > 0 ? h("li", { class: "soft small" }, t("jobs.more", { n: hidden })) : null);
  }

  row(/** @type {Job} */ job) {
    const isFailed = job.state === "failed", name = job.video === LEARNING ? t("job.learning_title") : job.name;
    const button = store.canEdit ? h("button", { type: "button", class: "button quiet", "aria-label": `${t(isFailed ? "job.retry" : "reading.stop")}: ${name}` }, t(isFailed ? "job.retry" : "reading.stop")) : null;
    button?.addEventListener("click", () => withErrors(async () => {
      button.disabled = true;
      await sendJson(isFailed ? "POST" : "DELETE", isFailed ? `jobs/${job.id}/retry` : `jobs/${job.id}`);
      await this.load();
    }));
    return h("li", { class: isFailed ? "job failed" : "job" },
      h("strong", { class: "ellipsis" }, name), isFailed ? h("span", { class: "small problem" }, job.message) : jobBar(job, name),
      isFailed ? null : h("span", { class: "small soft number" }, describeJob(job)),
      job.user && job.user !== "local" && job.user !== "token" ? h("span", { class: "small soft" }, icon("person"), job.user) : null, button);
  }
}

/** What learning has changed, with links to the renamed steps. @param {Learned} learned */
export function learnedNotice({ num_names, num_steps, num_videos, num_named_anew, videos }) {
  if (!num_names) return null;
  const from = t("learned.from", { names: t("count.names", { n: num_names }), steps: t("count.steps", { n: num_steps }), videos: t("count.videos", { n: num_videos }) });
  const summary = `${from} ${num_named_anew ? t("learned.renamed", { n: num_named_anew }) : t("learned.none")}`;
  const rows = videos.map(({ id, video, steps }) => h("li", {}, h("strong", {}, video), h("ul", {}, ...steps.map(step => h("li", { class: "small" },
    h("a", { class: "number", href: momentAddress(id, step.start_s) }, formatSpan(step)),
    ` ${step.before ?? t("step.no_name")} → `, h("strong", {}, step.after ?? t("step.no_name")))))));
  return h("div", { id: "learned", class: "notice" }, icon("check"), h("p", { id: "learn-status", class: "grow" }, summary),
    rows.length ? h("details", {}, h("summary", {}, t("learned.show")), h("ul", { class: "stack" }, ...rows)) : null);
}
