// @ts-check
// Cards: a video of the collection, and a moment that plays while the pointer is over it.
import { fileUrl, getJson, thumbnailUrl } from "../api.js";
import { h, icon } from "../dom.js";
import { certainty, formatSpan, formatTime, percent, stepTitle } from "../format.js";
import { t } from "../texts.js";
import { playOnHover } from "../video/preview.js";
import { describeJob, isActive } from "./progress.js";

/**
 * @typedef {{ id: string, name: string, pictures: boolean, playable: boolean, num_files: number, duration_s: number | null,
 *   num_steps: number | null, read: boolean, folder: string, date: string, first_steps: string[], edited: boolean,
 *   editing: string[] }} Video
 * @typedef {{ id: string | null, video: string, step: string, start_s: number, end_s: number, label: string | null,
 *   probability: number, pictures: boolean, rests_on?: string | null, quote?: string | null, file?: string,
 *   file_start_s?: number, level: number }} Hit
 */

const FRAME_S = 1;  // the frame that stands for a video whose length is not known yet
const PICTURE_SHARE = 0.3;  // of a video, where its picture is taken: recordings often begin alike

/**
 * @param {Video} video
 * @param {import("./progress.js").Job | undefined} job
 * @param {((video: Video) => void) | null} onRead starts to read it, null without the right to do so
 */
export function videoCard(video, job, onRead) {
  const isRunning = job !== undefined && isActive(job);
  const state = isRunning ? null : video.read ? video.num_steps && h("span", { class: "badge" }, t("count.steps", { n: video.num_steps }))
    : h("span", { class: "badge warn" }, t("video.unread"));
  const link = h("a", { class: "card video-card", href: `#v=${video.id}` },
    h("div", { class: "picture" }, videoPicture(video),
      video.duration_s ? h("span", { class: "badge on-picture" }, formatTime(video.duration_s)) : null,
      isRunning ? jobOverlay(job) : null),
    h("div", { class: "card-text" },
      h("h2", { class: "card-title", title: video.name }, video.name),
      h("p", { class: "first-steps" }, video.first_steps.length ? video.first_steps.join(" · ") : describeVideo(video)),
      h("p", { class: "badges" }, state,
        video.edited ? h("span", { class: "badge accent" }, icon("pencil"), t("video.edited")) : null,
        video.num_files > 1 ? h("span", { class: "badge" }, t("count.files", { n: video.num_files })) : null,
        video.playable ? null : h("span", { class: "badge" }, t("video.no_file")),
        video.editing.length ? h("span", { class: "badge good" }, icon("person"), t("video.editing", { names: video.editing.join(", ") })) : null)));
  const read = !video.read && !isRunning && onRead
    ? h("button", { type: "button", class: "button read", "aria-label": t("video.read_one", { name: video.name }), onclick: () => onRead(video) }, t("video.read"))
    : null;
  return h("li", { dataset: { id: video.id } }, link, read);
}

/** @param {Video} video */
const describeVideo = video => [video.folder, video.date].filter(Boolean).join(" · ");

/** @param {Video} video */
function videoPicture(video) {
  if (video.read && video.pictures) return picture(thumbnailUrl(video.id, video.duration_s ? PICTURE_SHARE * video.duration_s : FRAME_S));
  const placeholder = h("span", { class: "placeholder" }, icon("film"));
  if (!video.playable) return placeholder;
  const frame = h("video", { muted: true, preload: "none", tabIndex: -1, "aria-hidden": "true", dataset: { src: `${fileUrl(video.id)}#t=${FRAME_S}` } });
  frame.addEventListener("error", () => frame.replaceWith(placeholder));
  whenVisible(frame);
  return frame;
}

/** @param {string} src */
function picture(src) {
  const image = h("img", { src, alt: "", loading: "lazy" });
  image.addEventListener("error", () => image.replaceWith(h("span", { class: "placeholder" }, icon("film"))));
  return image;
}

const observer = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    const video = /** @type {HTMLVideoElement} */ (target);
    video.preload = "metadata";
    video.src = video.dataset.src ?? "";
    observer.unobserve(video);
  }
}, { rootMargin: "200px" });

/** Loads the first frame of a video once it can be seen. @param {HTMLVideoElement} video */
function whenVisible(video) { observer.observe(video); }

/** @param {import("./progress.js").Job} job */
function jobOverlay(job) {
  const bar = h("progress", { max: job.duration_s || 1, "aria-label": t("job.progress", { name: job.name }) });
  if (job.state === "running" && job.duration_s) bar.value = job.done_s;
  else if (job.state === "waiting") bar.value = 0;
  return h("div", { class: "overlay" }, h("span", {}, describeJob(job)), bar);
}

/**
 * A moment that a search has found. It plays while the pointer or the focus is on it.
 * @param {Hit} hit
 * @param {string} query
 */
export function momentCard(hit, query) {
  const address = new URLSearchParams({ v: hit.id ?? "", t: hit.start_s.toFixed(1), ...(query ? { q: query } : {}) });
  const frame = h("div", { class: "picture" },
    hit.id && hit.pictures ? picture(thumbnailUrl(hit.id, (hit.start_s + hit.end_s) / 2)) : h("span", { class: "placeholder" }, icon("film")),
    h("span", { class: "badge on-picture" }, formatTime(hit.start_s)));
  const card = h(hit.id ? "a" : "div", { class: "card moment-card", ...(hit.id ? { href: `#${address}` } : {}) }, frame,
    h("div", { class: "card-text" },
      h("h3", { class: "card-title" }, hitTitle(hit)),
      h("p", { class: "small soft number" }, formatSpan(hit)),
      h("p", { class: "sure" }, h("span", { class: "meter" }, h("i", { style: `width: ${Math.round(100 * hit.probability)}%` })),
        h("span", { class: "number" }, percent(hit.probability)), h("span", { class: "soft" }, certainty(hit.probability))),
      hit.quote ? h("p", { class: "small quote" }, `“${hit.quote}”`) : hit.rests_on ? h("p", { class: "small soft" }, t(restsOn(hit.rests_on))) : null));
  if (hit.id && hit.pictures) findClip(hit).then(clip => playOnHover(card, frame, clip)).catch(() => {});
  return h("li", {}, card);
}

/** @param {Hit} hit */
export const hitTitle = hit => stepTitle(hit.label, /\d+$/.exec(hit.step)?.[0] ?? hit.step);

/** @param {string} source @returns {any} */
const restsOn = source => ({ speech: "hit.speech", pictures: "hit.pictures", both: "hit.both", name: "hit.name" })[source] ?? "hit.pictures";

/**
 * The file in which a hit plays and its times there. A video may consist of several files.
 * @param {Hit} hit
 */
export async function findClip(hit) {
  const length_s = hit.end_s - hit.start_s;
  if (hit.file === undefined) return { src: fileUrl(hit.id ?? ""), start_s: hit.start_s, end_s: hit.end_s };
  const { files } = await getJson(`videos/${hit.id}`);
  const part = Math.max(0, files.findIndex((/** @type {{ name: string }} */ file) => file.name === hit.file)), start_s = hit.file_start_s ?? 0;
  return { src: fileUrl(hit.id ?? "", part, files.length), start_s, end_s: start_s + length_s };
}
