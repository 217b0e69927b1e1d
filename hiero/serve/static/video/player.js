// @ts-check
// The player: one timeline over all files of a video. It opens the file at a moment and continues with the next one.
import { fileUrl } from "../api.js";

export class Player {
  /** @type {string | null} */ id = null;
  /** @type {VideoFile[]} */ files = [];
  part = 0;
  /** @type {number | null} start time in a file that is being opened, otherwise null */ target = null;
  resume = false;

  // onTime is called with the current time, onShape with the width of the picture divided by its height.
  /** @param {HTMLVideoElement} element @param {(time: number) => void} onTime @param {(ratio: number) => void} onShape */
  constructor(element, onTime, onShape) {
    this.element = element;
    this.onTime = onTime;
    this.onShape = onShape;
    for (const event of ["timeupdate", "seeked"]) element.addEventListener(event, () => { if (this.target === null) onTime(this.currentTime); });
    element.addEventListener("play", () => this.everyFrame());
    element.addEventListener("loadedmetadata", () => this.onLoaded());
    element.addEventListener("ended", () => { if (element.ended && this.part + 1 < this.files.length) this.openPart(this.part + 1, 0, true); });
  }

  // "timeupdate" comes four times a second, which would make the cursor jump.
  everyFrame() {
    if (this.element.paused || this.target !== null) return;
    this.onTime(this.currentTime);
    requestAnimationFrame(() => this.everyFrame());
  }

  get paused() { return this.element.paused && !this.resume; }
  get currentTime() { return (this.files[this.part]?.start_s ?? 0) + (this.target ?? this.element.currentTime); }

  set currentTime(time) {
    const { part, inFile } = this.locate(time);
    if (part !== this.part) this.openPart(part, inFile, !this.element.paused);
    else if (this.target !== null) this.target = inFile;  // the file is still being opened
    else this.element.currentTime = inFile;
  }

  /** The file of a time, and the time in it. @param {number} time */
  locate(time) {
    let part = this.files.length - 1;
    while (part > 0 && this.files[part].start_s > time + 1e-6) part--;
    return { part, inFile: Math.max(0, time - (this.files[part]?.start_s ?? 0)) };
  }

  /** The address of the file of a span, and the span in it. @param {Span} span */
  clip({ start_s, end_s }) {
    if (!this.id) return null;
    const { part, inFile } = this.locate(start_s);
    return { src: this.sourceOf(part), start_s: inFile, end_s: inFile + end_s - start_s };
  }

  /** @param {string} id @param {VideoFile[]} files in time order @param {number} time */
  open(id, files, time = 0) {
    this.id = id;
    this.files = files;
    this.part = -1;
    this.openPart(0, 0, false);
    if (time) this.currentTime = time;
  }

  close() {
    Object.assign(this, { id: null, files: [], part: 0, target: null, resume: false });
    this.element.removeAttribute("src");
  }

  /** @param {number} part @param {number} time @param {boolean} resume */
  openPart(part, time, resume) {
    Object.assign(this, { part, target: time, resume });
    this.element.src = this.sourceOf(part);
    this.element.load();
  }

  sourceOf(/** @type {number} */ part) { return fileUrl(this.id ?? "", part, this.files.length); }

  onLoaded() {
    const { target, resume, element } = this;
    this.target = null;
    this.resume = false;
    if (element.videoWidth) this.onShape(element.videoWidth / element.videoHeight);
    if (target) element.currentTime = target;
    if (resume) element.play().catch(() => {});
  }

  play() {
    if (this.target === null) { this.element.play().catch(() => {}); return; }
    this.resume = true;
  }

  pause() { this.resume = false; this.element.pause(); }
  toggle() { if (this.paused) this.play(); else this.pause(); }
}
