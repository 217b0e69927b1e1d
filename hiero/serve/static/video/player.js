// The player: one timeline over all files of a video. It opens the file at a moment and continues with the next one.

export class Player {
  // onTime is called with the current time in seconds whenever it changes.
  constructor(element, onTime) {
    this.element = element;
    this.close();
    for (const event of ["timeupdate", "seeked"]) element.addEventListener(event, () => { if (this.target === null) onTime(this.currentTime); });
    element.addEventListener("loadedmetadata", () => this.onLoaded());
    element.addEventListener("ended", () => { if (element.ended && this.part + 1 < this.files.length) this.openPart(this.part + 1, 0, true); });
  }

  get paused() { return this.element.paused && !this.resume; }
  get currentTime() { return (this.files[this.part]?.start_s ?? 0) + (this.target ?? this.element.currentTime); }

  set currentTime(time) {
    let part = this.files.length - 1;
    while (part > 0 && this.files[part].start_s > time + 1e-6) part--;
    const inFile = Math.max(0, time - this.files[part].start_s);
    if (part !== this.part) this.openPart(part, inFile, !this.element.paused);
    else if (this.target !== null) this.target = inFile;  // the file is still being opened
    else this.element.currentTime = inFile;
  }

  // files: [{ start_s, duration_s, name }] in time order.
  open(id, files, time = 0) {
    this.id = id; this.files = files; this.part = -1;
    this.openPart(0, 0, false);
    if (time) this.currentTime = time;
  }

  close() {
    this.id = null; this.files = []; this.part = 0;
    this.target = null;  // start time in a file that is being opened, otherwise null
    this.resume = false;
    this.element.removeAttribute("src");
  }

  openPart(part, time, resume) {
    this.part = part; this.target = time; this.resume = resume;
    this.element.src = `api/videos/${this.id}/file${this.files.length > 1 ? `?part=${part}` : ""}`;
    this.element.load();
  }

  onLoaded() {
    const { target, resume } = this;
    this.target = null; this.resume = false;
    if (target) this.element.currentTime = target;
    if (resume) this.element.play().catch(() => {});
  }

  play() { return this.target === null ? this.element.play() : (this.resume = true, Promise.resolve()); }
  pause() { this.resume = false; this.element.pause(); }
}
