// @ts-check
// The same step in other videos: side by side, playing in sync.
import { getJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { formatSpan } from "../format.js";
import { sureMeter } from "../moments.js";
import { momentAddress, store } from "../store.js";
import { t } from "../texts.js";
import { findClip, hitTitle } from "./cards.js";

const NUM_HITS = 5;  // besides the step itself
const MAX_DRIFT_S = 0.25;  // a player that is further away is moved

const title = h("h1", { id: "elsewhere-title" }), grid = h("ol", { id: "same-players", class: "side-by-side cards" });
const play = h("button", { id: "play-all", type: "button", class: "button primary" });
const slider = h("input", { id: "sync", type: "range", min: 0, max: 1000, value: 0, class: "grow", "aria-label": t("elsewhere.position") });
const stretch = h("input", { id: "stretch", type: "checkbox" });
const back = h("a", { class: "button quiet", href: "#" }, t("elsewhere.back"));
const root = h("section", { id: "elsewhere", class: "stack", hidden: true, "aria-labelledby": "elsewhere-title" },
  h("div", { class: "bar" }, h("div", { class: "grow" }, title), back),
  h("div", { class: "bar panel sync-bar" }, play, slider, h("label", { class: "check" }, stretch, t("elsewhere.stretch"))), grid);

// Where each clip is at a share of the longest clip. Stretched, all end together; otherwise shorter ones wait at their end.
/** @param {number} share from 0 to 1 @param {Span[]} clips @param {boolean} isStretched */
export function clipTimes(share, clips, isStretched) {
  const longest = Math.max(...clips.map(clip => clip.end_s - clip.start_s));
  return clips.map(({ start_s, end_s }) => isStretched ? start_s + share * (end_s - start_s) : Math.min(end_s, start_s + share * longest));
}

/** Plays clips by one clock. */
class SyncedPlayers {
  /** @type {(Span & { element: HTMLVideoElement })[]} */ clips = [];
  share = 0;
  isPlaying = false;
  last = 0;

  get longest_s() { return Math.max(0.1, ...this.clips.map(clip => clip.end_s - clip.start_s)); }

  /** @param {(Span & { element: HTMLVideoElement })[]} clips */
  open(clips) { this.pause(); this.clips = clips; this.seek(0); }

  seek(/** @type {number} */ share) {
    this.share = share;
    slider.value = String(Math.round(1000 * share));
    const times = clipTimes(share, this.clips, stretch.checked);
    this.clips.forEach(({ element }, i) => { if (Math.abs(element.currentTime - times[i]) > (this.isPlaying ? MAX_DRIFT_S : 0.01)) element.currentTime = times[i]; });
    return times;
  }

  play() {
    if (this.isPlaying || !this.clips.length) return;
    if (this.share >= 1) this.seek(0);
    this.isPlaying = true;
    this.last = performance.now();
    const { longest_s } = this;
    for (const { element, start_s, end_s } of this.clips) {
      element.playbackRate = stretch.checked ? Math.min(4, Math.max(0.25, (end_s - start_s) / longest_s)) : 1;
      element.play().catch(() => {});
    }
    showButton();
    requestAnimationFrame(now => this.tick(now));
  }

  tick(/** @type {number} */ now) {
    if (!this.isPlaying) return;
    const share = Math.min(1, this.share + (now - this.last) / 1000 / this.longest_s);
    this.last = now;
    const times = this.seek(share);
    this.clips.forEach(({ element, end_s }, i) => { if (times[i] >= end_s) element.pause(); });
    if (share >= 1) this.pause(); else requestAnimationFrame(next => this.tick(next));
  }

  pause() {
    this.isPlaying = false;
    for (const { element } of this.clips) element.pause();
    showButton();
  }
}

const players = new SyncedPlayers();
play.addEventListener("click", () => { if (players.isPlaying) players.pause(); else players.play(); });
slider.addEventListener("input", () => { players.pause(); players.seek(Number(slider.value) / 1000); });
stretch.addEventListener("change", () => { players.pause(); players.seek(players.share); });

function showButton() { fill(play, icon(players.isPlaying ? "pause" : "play"), t(players.isPlaying ? "elsewhere.pause" : "elsewhere.play")); }

/** @type {View} */
export const elsewhereView = {
  root,
  async show({ v, t: time, same }, isCurrent) {
    const video = await getJson(`videos/${v}`);
    const query = new URLSearchParams({ video: video.name, t: time || "0", n: String(NUM_HITS), ...(/^\d+$/.test(same) ? { level: same } : {}) });
    /** @type {{ step: Hit, hits: Hit[] }} */
    const { step, hits } = await getJson(`search/like?${query}`);
    const likely = hits.filter(store.isLikely);
    const shown = [step, ...(likely.length ? likely : hits)].filter(hit => hit.id && hit.pictures);
    const clips = await Promise.all(shown.map(findClip));
    if (!isCurrent()) return;
    document.title = `${hitTitle(step)} · hiero`;
    title.textContent = t(likely.length ? "elsewhere.title" : "elsewhere.nothing", { step: hitTitle(step) });
    back.href = momentAddress(v, step.start_s);
    root.hidden = false;
    const elements = shown.map((_, i) => h("video", { src: clips[i].src, muted: true, playsInline: true, preload: "auto", tabIndex: -1, "aria-label": shown[i].video }));
    fill(grid, ...shown.map((hit, i) => h("li", { class: i ? "card" : "card own" }, h("div", { class: "picture" }, elements[i]),
      h("div", { class: "card-text" }, h("h2", { class: "card-title two-lines" }, h("a", { href: momentAddress(hit.id ?? "", hit.start_s) }, hit.video)),
        h("p", { class: "small soft" }, hitTitle(hit), " · ", h("span", { class: "number" }, formatSpan(hit))),
        i ? sureMeter(hit.probability) : h("p", { class: "small" }, t("elsewhere.this"))))));
    players.open(clips.map((clip, i) => ({ element: elements[i], start_s: clip.start_s, end_s: clip.end_s })));
  },
  hide() { players.open([]); fill(grid); },
};
