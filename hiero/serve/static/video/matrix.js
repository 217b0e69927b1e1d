// @ts-check
// The similarity matrix in tiles, with the steps as squares. A click seeks to the moment; a thin line marks the present.
import { fetchTile } from "../api.js";
import { fill, h } from "../dom.js";
import { formatSpan, stepTitle, threadColour } from "../format.js";
import { t } from "../texts.js";
import { stepAt } from "./steps.js";

const TILE_SIZE = 128;  // as in video_routes.py
const ZOOM = 2;  // at most 512 rows, in 4 tiles
const NUM_KEY_STEPS = 50;  // number of key presses to cross the video
const SHARPNESS = 1024;  // pixels of the canvas, so that squares and the line are thin

export class Matrix {
  /** @type {Step[]} */ steps = [];
  /** @type {OffscreenCanvas | null} */ picture = null;
  duration = 1;
  time = 0;

  /** @param {{ onSeek: (time: number) => void, pictureUrl: (time: number) => string | null }} events */
  constructor({ onSeek, pictureUrl }) {
    this.pictureUrl = pictureUrl;
    this.canvas = h("canvas", { id: "matrix", tabIndex: 0, role: "img", "aria-label": t("matrix.label") });
    this.pair = h("div", { class: "pair", "aria-live": "polite" });
    this.root = h("div", { class: "matrix" }, this.canvas, h("div", { class: "stack" }, h("p", { class: "soft" }, t("matrix.hint")), this.pair));
    const timeAt = (/** @type {number} */ place) => Math.min(this.duration, Math.max(0, this.duration * place / this.canvas.clientWidth));
    this.canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => onSeek(timeAt(event.offsetX)));
    this.canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.compare(timeAt(event.offsetY), timeAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      event.stopPropagation();
      const direction = event.key === "ArrowRight" ? 1 : -1;
      onSeek(Math.max(0, Math.min(this.duration, this.time + direction * this.duration / NUM_KEY_STEPS)));
    });
  }

  /** Loads the matrix from the server. @param {string} video @param {() => boolean} isCurrent whether this video is still shown */
  async show(video, isCurrent = () => true) {
    const first = await fetchTile(video, ZOOM, 0, 0);
    if (!first || !isCurrent()) return;
    const numTiles = Math.ceil(first.cells / TILE_SIZE), picture = new OffscreenCanvas(first.cells, first.cells);
    for (let row = 0; row < numTiles; row++) {
      for (let column = 0; column <= row; column++) {  // the matrix is symmetric
        const tile = row + column === 0 ? first : await fetchTile(video, ZOOM, row, column);
        if (!tile || !isCurrent()) return;
        paint(picture, tile, column * TILE_SIZE, row * TILE_SIZE);
      }
    }
    this.showPicture(picture);
    this.canvas.dataset.ready = video;
  }

  /** Shows the matrix of a report. @param {{ size: number, values: string }} matrix one byte per cell in base 64 */
  showBytes({ size, values }) {
    const picture = new OffscreenCanvas(size, size);
    paint(picture, { rows: size, columns: size, values: Uint8Array.from(atob(values), character => character.charCodeAt(0)) }, 0, 0);
    this.showPicture(picture);
  }

  showPicture(/** @type {OffscreenCanvas} */ picture) {
    this.picture = picture;
    this.canvas.width = this.canvas.height = SHARPNESS;
    this.draw();
  }

  /** Shows the steps at two times side by side. @param {number} first @param {number} second */
  compare(first, second) {
    const steps = [stepAt(this.steps, first), stepAt(this.steps, second)], key = steps.map(step => step?.id).join(" ");
    if (!this.steps.length || this.pair.dataset.key === key) return;
    this.pair.dataset.key = key;
    fill(this.pair, ...steps.map(step => {
      const url = this.pictureUrl((step.start_s + step.end_s) / 2), title = stepTitle(step, this.steps.indexOf(step) + 1);
      return h("figure", {}, h("div", { class: "picture" }, url ? h("img", { src: url, alt: "" }) : null), h("strong", {}, title), h("span", { class: "soft small number" }, formatSpan(step)));
    }));
  }

  clear() { this.picture = null; this.steps = []; delete this.canvas.dataset.ready; fill(this.pair); delete this.pair.dataset.key; }

  showSteps(/** @type {Hierarchy} */ { levels, duration_s }) { Object.assign(this, { steps: levels.at(-1)?.steps ?? [], duration: duration_s }); this.draw(); }

  showTime(/** @type {number} */ time) { this.time = time; this.draw(); }

  draw() {
    const { picture, canvas, duration } = this;
    if (!picture || !canvas.offsetParent) return;
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")), position = (/** @type {number} */ time) => SHARPNESS * time / duration;
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, 0, 0, SHARPNESS, SHARPNESS);
    for (const { start_s, end_s, thread } of this.steps) {
      const left = position(start_s) + 3, size = Math.max(1, position(end_s) - left - 3);
      for (const [colour, width] of [["#fff", 6], [threadColour(thread), 3]]) {  // seen on bright and on dark cells
        Object.assign(context, { strokeStyle: colour, lineWidth: width });
        context.strokeRect(left, left, size, size);
      }
    }
    context.fillStyle = "#ff6b60";
    context.fillRect(position(this.time) - 1, 0, 2, SHARPNESS);
  }
}

// Paints a tile, and mirrored on the other side of the diagonal.
/** @param {OffscreenCanvas} picture @param {{ rows: number, columns: number, values: Uint8Array }} tile @param {number} left @param {number} top */
function paint(picture, { rows, columns, values }, left, top) {
  const image = new ImageData(columns, rows), mirrored = new ImageData(rows, columns), context = picture.getContext("2d");
  values.forEach((value, i) => {
    const colour = [value * 0.82, Math.min(255, value * 0.92), Math.min(255, 50 + value * 0.8), 255];
    image.data.set(colour, 4 * i);
    mirrored.data.set(colour, 4 * (i % columns * rows + Math.floor(i / columns)));
  });
  context?.putImageData(image, left, top);
  context?.putImageData(mirrored, top, left);
}
