// @ts-check
// Adding videos: files from a dialog or dropped on the page, a folder of this machine, and the sample.
import { getJson, sendJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { showError, toast, withErrors } from "../shell.js";
import { changeAddress, store } from "../store.js";
import { t } from "../texts.js";

export const isVideoName = (/** @type {string} */ name) => /\.(mp4|m4v|mov|mkv|webm|avi|mpe?g|mts|m2ts|ts|3gp|ogv|wmv|flv|insv|lrv)$/i.test(name);

/** Uploads a file. Returns the video, which the server may have had before. @param {File} file @param {(share: number) => void} onProgress */
async function upload(file, onProgress) {
  const request = new XMLHttpRequest();  // unlike fetch, it reports progress
  request.open("POST", `api/upload?name=${encodeURIComponent(file.name)}`);
  request.responseType = "json";
  request.upload.onprogress = ({ loaded, total }) => onProgress(loaded / total);
  await new Promise(resolve => { request.onloadend = resolve; request.send(file); });
  if (![200, 201].includes(request.status)) throw new Error(request.response?.error || t("add.failed", { name: file.name }));
  return request.response;
}

/** The files that were dropped, also those inside of folders. @param {DataTransfer} transfer @returns {Promise<File[]>} */
async function droppedFiles(transfer) {
  const entries = [...transfer.items].map(item => item.webkitGetAsEntry?.()).filter(entry => entry !== null && entry !== undefined);
  if (!entries.length) return [...transfer.files];
  return (await Promise.all(entries.map(filesOf))).flat();
}

/** @param {any} entry @returns {Promise<File[]>} */
async function filesOf(entry) {
  if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))];
  const reader = entry.createReader(), files = [];
  for (;;) {  // a reader gives at most 100 entries at a time
    const inner = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!inner.length) return files;
    files.push(...(await Promise.all(inner.map(filesOf))).flat());
  }
}

/** The menu to add videos, the place to drop them, and the page of a server that has none. */
export class Adding {
  /** @param {() => void} onAdded called when videos were added or are being read */
  constructor(onAdded) {
    this.onAdded = onAdded;
    this.input = h("input", { id: "file", type: "file", accept: "video/*", multiple: true, class: "hidden", tabIndex: -1, "aria-label": t("add.files") });
    this.input.onchange = async () => { await this.addFiles([...this.input.files]); this.input.value = ""; };
    this.status = h("div", { id: "uploads", role: "status", "aria-live": "polite" });
    this.button = h("button", { id: "add", type: "button", class: "button primary", hidden: true, onclick: () => this.input.click() }, icon("upload"), t("add.button"));
    this.folderButton = h("button", { id: "add-folder", type: "button", class: "button", hidden: true, onclick: () => this.chooseFolder() }, icon("folder"), t("add.folder"));
    this.drop = h("div", { id: "drop", class: "drop-area", hidden: true, "aria-hidden": "true" }, icon("upload"), t("add.drop"));
    this.dialog = h("dialog", { id: "folders", class: "folders", "aria-labelledby": "folders-title" });
    this.root = h("div", { class: "adding" }, this.input, this.status, this.drop, this.dialog);
    this.listenForDrops();
  }

  get mayUpload() { return store.canEdit && Boolean(store.server?.uploads); }

  get mayChooseFolders() { return store.me?.role === "admin" && Boolean(store.server?.folders); }

  show() {
    this.button.hidden = !this.mayUpload;
    this.folderButton.hidden = !this.mayChooseFolders;
  }

  listenForDrops() {
    let depth = 0;  // of the elements that are dragged over: each sends its own events
    const toggle = (/** @type {number} */ change) => { depth = Math.max(0, depth + change); this.drop.hidden = depth === 0; };
    const isWanted = (/** @type {DragEvent} */ event) => this.mayUpload && event.dataTransfer?.types.includes("Files");
    addEventListener("dragenter", event => { if (isWanted(event)) toggle(1); });
    addEventListener("dragleave", event => { if (isWanted(event)) toggle(-1); });
    addEventListener("dragover", event => { if (isWanted(event)) event.preventDefault(); });
    addEventListener("drop", async event => {
      if (!isWanted(event) || !event.dataTransfer) return;
      event.preventDefault();
      toggle(-depth);
      await this.addFiles(await droppedFiles(event.dataTransfer));
    });
  }

  async addFiles(/** @type {File[]} */ files) {
    const videos = files.filter(file => isVideoName(file.name) || file.type.startsWith("video/"));
    if (files.length && !videos.length) { showError(new Error(t("add.no_videos"))); return; }
    const added = new Set();  // chapters of a recording are one video
    for (const [i, file] of videos.entries()) {
      const bar = h("progress", { max: 1, value: 0, "aria-label": t("add.sending", { name: file.name }) });
      fill(this.status, h("div", { class: "panel upload" }, h("strong", { class: "ellipsis" }, file.name), bar, h("span", { class: "soft small number" }, t("add.number", { number: i + 1, total: videos.length }))));
      try {
        const { id, name, existed } = await upload(file, share => { bar.value = share; });
        added.add(id);
        if (existed) toast(t("add.existed", { name }));
      } catch (error) { showError(error); }
    }
    fill(this.status);
    if (added.size === 1) changeAddress({ v: [...added][0] });
    else if (added.size) { toast(t("add.done", { n: added.size })); this.onAdded(); }
  }

  addSample() {
    return withErrors(async () => {
      changeAddress({ v: (await sendJson("POST", "sample")).id });
    });
  }

  /** Lets an administrator choose a folder of this machine. @param {string} path */
  async chooseFolder(path = "") {
    try {
      const { folders, videos } = await getJson(`folders?path=${encodeURIComponent(path)}`);
      const parts = path.split("/").filter(Boolean);
      const crumbs = [t("folders.home"), ...parts].map((name, i) => h("button", { type: "button", class: "button quiet small", onclick: () => this.chooseFolder(parts.slice(0, i).join("/")) }, name));
      const rows = folders.map((/** @type {{ name: string, videos: number }} */ each) => h("li", {}, h("button", { type: "button", class: "folder", onclick: () => this.chooseFolder([...parts, each.name].join("/")) },
        icon("folder"), h("span", { class: "ellipsis grow" }, each.name), each.videos ? h("span", { class: "badge accent" }, t("count.videos", { n: each.videos })) : null, icon("chevron"))));
      fill(this.dialog, h("h2", { id: "folders-title" }, t("folders.title")), h("nav", { class: "bar crumbs", "aria-label": t("folders.path") }, ...crumbs),
        rows.length ? h("ul", { class: "panel list folder-list" }, ...rows) : h("p", { class: "empty" }, t("folders.none")),
        h("p", { class: "soft small" }, videos ? t("folders.here", { n: videos }) : t("folders.nothing_here")),
        h("div", { class: "bar end" }, h("button", { type: "button", class: "button", onclick: () => this.dialog.close() }, t("app.cancel")),
          h("button", { id: "use-folder", type: "button", class: "button primary", onclick: () => this.addFolder(path) }, t("folders.use"))));
      if (!this.dialog.open) this.dialog.showModal();
    } catch (error) { showError(error); }
  }

  addFolder(/** @type {string} */ path) {
    this.dialog.close();
    return withErrors(async () => {
      const { added } = await sendJson("POST", "folders", { path });
      toast(t("add.found", { n: added }));
      this.onAdded();
    });
  }

  /** What a server without videos shows. */
  welcome() {
    const choice = (/** @type {any} */ name, /** @type {string} */ id, /** @type {string} */ title, /** @type {string} */ text, /** @type {() => void} */ onclick) =>
      h("button", { id, type: "button", class: "card choice", onclick }, icon(name), h("strong", {}, title), h("span", { class: "soft small" }, text));
    return h("section", { id: "welcome", class: "welcome", "aria-labelledby": "welcome-title" },
      h("h1", { id: "welcome-title" }, t("welcome.title")), h("p", { class: "soft" }, t(this.mayUpload ? "welcome.text" : store.canEdit ? "welcome.start" : "welcome.ask")),
      this.mayUpload ? h("div", { class: "choices cards" },
        choice("film", "start-sample", t("welcome.sample"), t("welcome.sample_text"), () => this.addSample()),
        this.mayChooseFolders ? choice("folder", "start-folder", t("welcome.folder"), t("welcome.folder_text"), () => this.chooseFolder()) : null,
        choice("upload", "start-files", t("welcome.files"), t("welcome.files_text"), () => this.input.click())) : null);
  }
}
