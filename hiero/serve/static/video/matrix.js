// @ts-check
// The similarity matrix in tiles, with the steps as squares. A click seeks to the moment; a thin line marks the present.
import { fetchTile } from "../api.js";
import { threadColour } from "../format.js";

const TILE_SIZE = 128;  // as in video_routes.py
const ZOOM = 2;  // at most 512 rows, in 4 tiles
const NUM_KEY_STEPS = 50;  // number of key presses to cross the video
const SHARPNESS = 1024;  // pixels of the canvas, so that squares and the line are thin

export class Matrix {
  /** @param {HTMLCanvasElement} canvas @param {(time: number) => void} onSeek */
  constructor(canvas, onSeek) {
    this.canvas = canvas;
    this.duration = 1;
    this.time = 0;
    /** @type {{ start_s: number, end_s: number, thread: number }[]} */
    this.steps = [];
    /** @type {HTMLCanvasElement | null} */
    this.picture = null;
    canvas.addEventListener("click", event => {
      const box = canvas.getBoundingClientRect();
      onSeek(this.duration * (event.clientX - box.left) / box.width);
    });
    canvas.addEventListener("keydown", event => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      event.stopPropagation();
      const direction = event.key === "ArrowRight" ? 1 : -1;
      onSeek(Math.max(0, Math.min(this.duration, this.time + direction * this.duration / NUM_KEY_STEPS)));
    });
  }

  /** @param {string} video @param {number} duration @param {() => boolean} isCurrent whether this video is still shown */
  async show(video, duration, isCurrent = () => true) {
    this.duration = duration;
    const first = await fetchTile(video, ZOOM, 0, 0);
    if (!first || !isCurrent()) return;
    const numTiles = Math.ceil(first.cells / TILE_SIZE), picture = document.createElement("canvas");
    picture.width = picture.height = first.cells;
    const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
    for (let row = 0; row < numTiles; row++) {
      for (let column = 0; column <= row; column++) {  // the matrix is symmetric
        const tile = row + column === 0 ? first : await fetchTile(video, ZOOM, row, column);
        if (!tile || !isCurrent()) return;
        const { image, transposed } = tileImages(tile);
        context.putImageData(image, column * TILE_SIZE, row * TILE_SIZE);
        context.putImageData(transposed, row * TILE_SIZE, column * TILE_SIZE);
      }
    }
    this.picture = picture;
    this.canvas.width = this.canvas.height = SHARPNESS;
    this.draw();
    this.canvas.dataset.ready = video;
  }

  clear() { this.picture = null; this.steps = []; delete this.canvas.dataset.ready; }

  /** @param {{ start_s: number, end_s: number, thread: number }[]} steps */
  showSteps(steps) { this.steps = steps; this.draw(); }

  /** @param {number} time */
  showTime(time) { this.time = time; this.draw(); }

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

/** @param {{ rows: number, columns: number, values: Uint8Array }} tile */
function tileImages({ rows, columns, values }) {
  const image = new ImageData(columns, rows), transposed = new ImageData(rows, columns);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const value = values[y * columns + x];
      const colour = [value * 0.82, Math.min(255, value * 0.92), Math.min(255, 50 + value * 0.8), 255];
      image.data.set(colour, 4 * (y * columns + x));
      transposed.data.set(colour, 4 * (x * rows + y));
    }
  }
  return { image, transposed };
}
