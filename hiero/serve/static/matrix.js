// The similarity matrix in tiles, linked with the timeline: a click goes to the moment, and the moment is drawn into it.
import { tile } from "./api.js";

const TILE = 128;

export class Matrix {
  constructor(canvas, onSeek) {
    this.canvas = canvas;
    canvas.addEventListener("click", event => {
      const box = canvas.getBoundingClientRect();
      onSeek(this.length * (event.clientX - box.left) / box.width);
    });
    canvas.addEventListener("keydown", event => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      onSeek(Math.max(0, Math.min(this.length, this.time + (event.key === "ArrowRight" ? 1 : -1) * this.length / 50)));
    });
  }

  async show(video, length, still = () => true) {
    this.length = length; this.time = 0; this.picture = null;
    const zoom = 2;
    const first = await tile(video, zoom, 0, 0);
    if (!first || !still()) return;
    const num = Math.ceil(first.cells / TILE);
    this.canvas.width = this.canvas.height = first.cells;
    const context = this.canvas.getContext("2d", { willReadFrequently: true });
    for (let row = 0; row < num; row++) {
      for (let column = 0; column <= row; column++) {
        const part = row + column === 0 ? first : await tile(video, zoom, row, column);
        if (!part || !still()) return;
        const image = new ImageData(part.columns, part.rows), turned = new ImageData(part.rows, part.columns);
        for (let y = 0; y < part.rows; y++) {
          for (let x = 0; x < part.columns; x++) {
            const value = part.values[y * part.columns + x];
            const colour = [value * 0.9, Math.min(255, value * 1.02), Math.min(255, 40 + value * 0.8), 255];
            image.data.set(colour, 4 * (y * part.columns + x));
            turned.data.set(colour, 4 * (x * part.rows + y));
          }
        }
        context.putImageData(image, column * TILE, row * TILE);
        context.putImageData(turned, row * TILE, column * TILE);
      }
    }
    this.picture = context.getImageData(0, 0, first.cells, first.cells);
    this.canvas.dataset.ready = video;
  }

  at(time) {
    this.time = time;
    if (!this.picture) return;
    const context = this.canvas.getContext("2d", { willReadFrequently: true }), place = Math.round(this.canvas.width * time / this.length);
    context.putImageData(this.picture, 0, 0);
    context.fillStyle = "#ff5a4d";
    context.fillRect(place, 0, Math.max(1, this.canvas.width / 300), this.canvas.width);
    context.fillRect(0, place, this.canvas.width, Math.max(1, this.canvas.width / 300));
  }
}
