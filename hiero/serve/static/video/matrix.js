// The similarity matrix in tiles. A click seeks to the moment, and the current moment is marked.
import { fetchTile } from "../api.js";

const TILE_SIZE = 128;  // as in video_routes.py
const ZOOM = 2;  // at most 512 rows, in 4 tiles
const NUM_KEY_STEPS = 50;  // number of key presses to cross the video

export class Matrix {
  constructor(canvas, onSeek) {
    this.canvas = canvas;
    canvas.addEventListener("click", event => {
      const box = canvas.getBoundingClientRect();
      onSeek(this.duration * (event.clientX - box.left) / box.width);
    });
    canvas.addEventListener("keydown", event => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      const direction = event.key === "ArrowRight" ? 1 : -1;
      onSeek(Math.max(0, Math.min(this.duration, this.time + direction * this.duration / NUM_KEY_STEPS)));
    });
  }

  get context() { return this.canvas.getContext("2d", { willReadFrequently: true }); }

  // isCurrent returns whether this video is still shown.
  async show(video, duration, isCurrent = () => true) {
    this.duration = duration; this.time = 0; this.image = null;
    const first = await fetchTile(video, ZOOM, 0, 0);
    if (!first || !isCurrent()) return;
    const numTiles = Math.ceil(first.cells / TILE_SIZE);
    this.canvas.width = this.canvas.height = first.cells;
    for (let row = 0; row < numTiles; row++) {
      for (let column = 0; column <= row; column++) {  // the matrix is symmetric
        const tile = row + column === 0 ? first : await fetchTile(video, ZOOM, row, column);
        if (!tile || !isCurrent()) return;
        const { image, transposed } = tileImages(tile);
        this.context.putImageData(image, column * TILE_SIZE, row * TILE_SIZE);
        this.context.putImageData(transposed, row * TILE_SIZE, column * TILE_SIZE);
      }
    }
    this.image = this.context.getImageData(0, 0, first.cells, first.cells);
    this.canvas.dataset.ready = video;
  }

  clear() { this.image = null; delete this.canvas.dataset.ready; }

  // Marks a moment by a cross.
  showTime(time) {
    this.time = time;
    if (!this.image) return;
    const { context } = this, size = this.canvas.width, position = Math.round(size * time / this.duration), width = Math.max(1, size / 300);
    context.putImageData(this.image, 0, 0);
    context.fillStyle = "#ff5a4d";
    context.fillRect(position, 0, width, size);
    context.fillRect(0, position, size, width);
  }
}

function tileImages({ rows, columns, values }) {
  const image = new ImageData(columns, rows), transposed = new ImageData(rows, columns);
  for (let y = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++) {
      const value = values[y * columns + x];
      const colour = [value * 0.9, Math.min(255, value * 1.02), Math.min(255, 40 + value * 0.8), 255];
      image.data.set(colour, 4 * (y * columns + x));
      transposed.data.set(colour, 4 * (x * rows + y));
    }
  }
  return { image, transposed };
}
