// @ts-check
// Which part of a video the timeline shows, and where a time lies on it. Nothing here touches the page.

const MIN_SHOWN_S = 4;  // the closest zoom
const STEPS_S = [0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800];

export class Scale {
  /** @param {number} duration in seconds @param {number} width in pixels */
  constructor(duration, width) {
    this.duration = Math.max(duration, 0.001);
    this.width = width;
    this.from = 0;
    this.to = this.duration;
  }

  get shown() { return this.to - this.from; }
  get isFitted() { return this.shown >= this.duration * 0.999; }

  x(/** @type {number} */ time) { return (time - this.from) / this.shown * this.width; }

  time(/** @type {number} */ x) { return Math.min(this.duration, Math.max(0, this.from + x / this.width * this.shown)); }

  /** Shows a part of the video, moved and resized so that it lies inside the video. @param {number} from @param {number} to */
  show(from, to) {
    const shown = Math.min(this.duration, Math.max(Math.min(MIN_SHOWN_S, this.duration), to - from));
    const start = Math.min(this.duration - shown, Math.max(0, from));
    const isSame = start === this.from && start + shown === this.to;
    this.from = start;
    this.to = start + shown;
    return !isSame;
  }

  /** Zooms by a factor (over 1: closer) around a place, which stays where it is. @param {number} factor @param {number} x */
  zoom(factor, x) {
    const time = this.from + x / this.width * this.shown;
    const shown = Math.min(this.duration, Math.max(Math.min(MIN_SHOWN_S, this.duration), this.shown / factor));
    const from = time - shown * x / this.width;
    return this.show(from, from + shown);
  }

  /** @param {number} pixels to the right */
  pan(pixels) {
    const seconds = pixels / this.width * this.shown;
    return this.show(this.from + seconds, this.to + seconds);
  }

  fit() { return this.show(0, this.duration); }

  /** Makes a time visible, in the middle if it was not. @param {number} time */
  reveal(time) {
    if (time >= this.from && time <= this.to) return false;
    return this.show(time - this.shown / 2, time + this.shown / 2);
  }

  /** Round times for the ruler, at least some pixels apart. @param {number} [minPixels] */
  ticks(minPixels = 72) {
    const wanted = minPixels / this.width * this.shown, step = STEPS_S.find(s => s >= wanted) ?? STEPS_S[STEPS_S.length - 1];
    const ticks = [];
    for (let time = Math.ceil(this.from / step) * step; time <= this.to + 1e-6; time += step) ticks.push(time);
    return ticks;
  }
}

// A text that fits a width, with an ellipsis if it had to be cut, or "" if nothing useful fits.
/** @param {string} text @param {number} width of the space @param {number} textWidth of the whole text */
export function fitText(text, width, textWidth) {
  if (textWidth <= width) return text;
  const length = Math.floor(text.length * width / textWidth) - 1;
  return length < 2 ? "" : `${text.slice(0, length).trimEnd()}…`;
}
