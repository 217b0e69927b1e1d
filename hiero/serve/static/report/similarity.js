// @ts-check
// The similarity matrix of a report, with the steps as squares.

const SHARPNESS = 1024;  // pixels of the canvas, so that the squares are thin

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{ size: number, values: string }} matrix one byte per cell in base 64
 * @param {{ start_s: number, end_s: number }[]} steps
 * @param {number} duration
 */
export function drawSquares(canvas, { size, values }, steps, duration) {
  const bytes = Uint8Array.from(atob(values), character => character.charCodeAt(0)), picture = document.createElement("canvas"), image = new ImageData(size, size);
  bytes.forEach((value, i) => image.data.set([value * 0.82, Math.min(255, value * 0.92), Math.min(255, 50 + value * 0.8), 255], 4 * i));
  picture.width = picture.height = size;
  picture.getContext("2d")?.putImageData(image, 0, 0);
  canvas.width = canvas.height = SHARPNESS;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, SHARPNESS, SHARPNESS);
  context.strokeStyle = "#fff";
  context.lineWidth = 2;
  for (const { start_s, end_s } of steps) {
    const left = SHARPNESS * start_s / duration, side = SHARPNESS * (end_s - start_s) / duration;
    context.strokeRect(left + 1, left + 1, Math.max(1, side - 2), Math.max(1, side - 2));
  }
}
