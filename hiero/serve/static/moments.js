// @ts-check
// What a moment that was found shows: its probability, the evidence, and the moment itself while it is pointed at.
import { h } from "./dom.js";
import { certainty, percent } from "./format.js";
import { t } from "./texts.js";

export const sureMeter = (/** @type {number} */ probability) => h("span", { class: "sure", style: `--sure:${probability}` }, h("i", { "aria-hidden": "true" }), h("span", {}, `${certainty(probability)} · ${percent(probability)}`));

/** The evidence for an answer: the words that were said, or where it was found. @param {{ rests_on?: string | null, quote?: string | null }} match */
export function evidence({ rests_on, quote }) {
  if (quote) return h("span", { class: "small quote" }, `“${quote}”`);
  const text = { speech: t("hit.speech"), pictures: t("hit.pictures"), both: t("hit.both"), name: t("hit.name") }[rests_on ?? ""];
  return text ? h("span", { class: "small soft" }, text) : null;
}

const DELAY_MS = 200;

/** @param {HTMLElement} target what is pointed at @param {HTMLElement} frame what the moment plays over @param {Clip} moment */
export function playOnHover(target, frame, { src, start_s, end_s }) {
  let timer = 0;
  /** @type {HTMLVideoElement | null} */
  let video = null;
  const stop = () => {
    clearTimeout(timer);
    video?.removeAttribute("src");  // stops the download
    video?.remove();
    video = null;
  };
  const play = () => {
    video = /** @type {HTMLVideoElement} */ (h("video", { muted: true, playsInline: true, tabIndex: -1, "aria-hidden": "true", src: `${src}#t=${start_s.toFixed(2)},${end_s.toFixed(2)}` }));
    video.addEventListener("pause", () => { if (video && video.currentTime >= end_s - 0.3) { video.currentTime = start_s; video.play().catch(() => {}); } });
    video.addEventListener("error", stop);
    frame.append(video);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => {});
  };
  const start = () => { stop(); timer = setTimeout(play, DELAY_MS); };
  target.addEventListener("pointerenter", start);
  target.addEventListener("pointerleave", stop);
  target.addEventListener("focus", start);
  target.addEventListener("blur", stop);
}
