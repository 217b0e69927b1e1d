// @ts-check
// Cards: a video of the collection, and a moment that plays while the pointer is over it.
import { fileUrl, getJson, thumbnailUrl } from "../api.js";
import { h, icon } from "../dom.js";
import { formatSpan, formatTime, stepTitle } from "../format.js";
import { evidence, playOnHover, sureMeter } from "../moments.js";
import { momentAddress } from "../store.js";
import { t } from "../texts.js";
import { describeJob, isActive, jobBar } from "./progress.js";

const PICTURE_SHARE = 0.3;  // of a video, where its picture is taken: recordings often begin alike

/** @param {ListedVideo} video @param {Job | undefined} job @param {(() => void) | null} onRead null without the right to process it */
export function videoCard(video, job, onRead) {
  const isRunning = job !== undefined && isActive(job);
  const state = isRunning ? null : video.read ? video.num_steps && h("span", { class: "badge" }, t("count.steps", { n: video.num_steps }))
    : h("span", { class: "badge warn" }, t("video.unread"));
  const link = h("a", { class: "card video-card", href: `#v=${video.id}` },
    h("div", { class: "picture" }, picture(video.pictures && (video.read || video.playable) ? thumbnailUrl(video.id, video.duration_s ? PICTURE_SHARE * video.duration_s : 1) : null),
      video.duration_s ? h("span", { class: "badge on-picture" }, formatTime(video.duration_s)) : null,
      isRunning ? h("div", { class: "overlay" }, h("span", {}, describeJob(job)), jobBar(job, job.name)) : null),
    h("div", { class: "card-text" },
      h("h2", { class: "card-title two-lines", title: video.name }, video.name),
      h("p", { class: "first-steps two-lines" }, video.first_steps.length ? video.first_steps.join(" · ") : describeVideo(video)),
      h("p", { class: "badges" }, state,
        video.edited ? h("span", { class: "badge accent" }, icon("pencil"), t("video.edited")) : null,
        video.num_files > 1 ? h("span", { class: "badge" }, t("count.files", { n: video.num_files })) : null,
        video.playable ? null : h("span", { class: "badge" }, t("video.no_file")))));
  const read = !video.read && !isRunning && onRead
    ? h("button", { type: "button", class: "button read", "aria-label": t("video.read_one", { name: video.name }), onclick: onRead }, t("video.read"))
    : null;
  return h("li", { dataset: { id: video.id } }, link, read);
}

const describeVideo = (/** @type {ListedVideo} */ video) => [video.folder, video.date].filter(Boolean).join(" · ");

/** @param {string | null} src null shows that there is no picture */
function picture(src) {
  const placeholder = h("span", { class: "placeholder" }, icon("film"));
  return src ? h("img", { src, alt: "", loading: "lazy", onerror: (/** @type {any} */ { target }) => target.replaceWith(placeholder) }) : placeholder;
}

/** A moment that plays while the pointer or the focus is on it. @param {Hit} hit @param {string} query @param {boolean} showsVideo */
export function momentCard(hit, query, showsVideo = false) {
  const frame = h("div", { class: "picture" },
    picture(hit.id && hit.pictures ? thumbnailUrl(hit.id, (hit.start_s + hit.end_s) / 2) : null),
    h("span", { class: "badge on-picture" }, formatTime(hit.start_s)));
  const card = h(hit.id ? "a" : "div", { class: "card moment-card", href: hit.id ? momentAddress(hit.id, hit.start_s, query ? { q: query } : {}) : undefined }, frame,
    h("div", { class: "card-text" },
      h("h3", { class: "card-title two-lines" }, hitTitle(hit)),
      showsVideo ? h("p", { class: "small ellipsis" }, hit.video) : null,
      h("p", { class: "small soft number" }, formatSpan(hit)),
      sureMeter(hit.probability),
      evidence(hit)));
  if (hit.id && hit.pictures) findClip(hit).then(clip => playOnHover(card, frame, clip)).catch(() => {});
  return h("li", {}, card);
}

export function hitTitle(/** @type {Hit} */ { label, step }) {
  const [, level, number] = /^(.*)-(\d+)$/.exec(step) ?? [];
  return level ? label || t("step.of_level", { number, level }) : stepTitle({ label }, step);
}

/** The file in which a hit plays and its times there. A video may consist of several files. @param {Hit} hit */
export async function findClip(hit) {
  const length_s = hit.end_s - hit.start_s;
  if (hit.file === undefined) return { src: fileUrl(hit.id ?? ""), start_s: hit.start_s, end_s: hit.end_s };
  const { files } = await getJson(`videos/${hit.id}`);
  const part = Math.max(0, files.findIndex((/** @type {{ name: string }} */ file) => file.name === hit.file)), start_s = hit.file_start_s ?? 0;
  return { src: fileUrl(hit.id ?? "", part, files.length), start_s, end_s: start_s + length_s };
}
