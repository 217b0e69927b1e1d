// @ts-check
// The folder report: the activities that videos share, as timelines one below the other. The page shows it for the
// collection, and `hiero report` writes it to a file.
import { h, fill } from "../dom.js";
import { formatSpan, formatTime } from "../format.js";
import { t } from "../texts.js";

/** The activities that are shown in colour: those of several videos, or all of them if videos share nothing. @param {FolderReportData} data */
export function shownActivities(data) {
  const shared = data.activities.filter(activity => activity.num_videos > 1);
  if (shared.length) return { isShared: true, shown: shared };
  const owner = (/** @type {Activity} */ activity) => data.videos.findIndex(video => video.seconds[activity.number - 1] > 0);
  const first = (/** @type {Activity} */ activity) => data.videos[owner(activity)].runs.find(run => run.activity === activity.number)?.start_s ?? 0;
  return { isShared: false, shown: [...data.activities].sort((a, b) => owner(a) - owner(b) || first(a) - first(b)) };
}

/** Draws a report and keeps which activity is chosen. */
export class Report {
  /** @param {FolderReportData} data @param {(video: ReportVideo, time: number) => string | null} linkTo the address of a moment, if it can be opened */
  constructor(data, linkTo = () => null) {
    this.data = data;
    this.linkTo = linkTo;
    const { isShared, shown } = shownActivities(data);
    this.isShared = isShared;
    this.shown = shown;
    this.places = new Map(shown.map((activity, i) => [activity.number, i]));
    this.longest = Math.max(...data.videos.map(video => video.duration_s));
    this.chosen = 0;
    /** @type {[HTMLElement, Run, ReportVideo][]} */
    this.blocks = [];
    /** @type {Map<number, HTMLElement>} */
    this.cards = new Map();
    this.same = h("input", { id: "same-length", type: "checkbox", onchange: () => this.layout() });
    this.status = h("span", { id: "chosen-activity", class: "small", role: "status", "aria-live": "polite" });
    this.axis = h("div", { id: "axis", class: "axis", "aria-hidden": "true" });
  }

  /** Hues run once along the usual order; neighbours differ in lightness. @param {number} number */
  colour(number) {
    const place = this.places.get(number);
    return place === undefined ? "var(--single)" : `oklch(${place % 2 ? 0.84 : 0.74} .12 ${25 + place / this.shown.length * 315})`;
  }

  label(/** @type {number} */ number) { return this.data.activities[number - 1].label || t("report.activity", { number }); }

  numbered(/** @type {number} */ number) { const { label } = this.data.activities[number - 1]; return label ? `${number} ${label}` : this.label(number); }

  draw(/** @type {Element} */ root) {
    fill(root, this.numbers(), this.isShared ? null : h("p", { id: "advice", class: "notice warn" }, t("report.nothing_shared")),
      h("section", { class: "stack" }, h("h2", {}, t("report.when")), h("p", { class: "soft small" }, t("report.when_text")),
        h("div", { class: "bar" }, h("label", { class: "check" }, this.same, t("report.same_length")), this.status),
        h("div", { id: "lanes", class: "panel lanes" }, ...this.data.videos.map(video => this.lane(video)), h("div", { class: "lane" }, h("span"), this.axis))),
      h("section", { class: "stack" }, h("h2", {}, t(this.isShared ? "report.order" : "report.each")), h("p", { class: "soft small" }, t("report.order_text")),
        h("ol", { id: "order", class: "cards activities" }, ...this.shown.map(activity => this.card(activity))), this.rare()),
      this.isShared ? this.differences() : null, this.table());
    this.layout();
  }

  numbers() {
    const { videos, agreement } = this.data, lengths = videos.map(video => video.duration_s).sort((a, b) => a - b);
    const order = t(agreement > 0.3 ? "report.alike" : agreement > 0.12 ? "report.partly" : "report.hardly");
    const shared = this.isShared ? this.shown.length : 0, total = lengths.reduce((sum, length) => sum + length, 0);
    const facts = [[videos.length, t("report.videos")], [formatTime(total), t("report.total")], [shared, t("report.shared")], [formatTime(lengths[lengths.length >> 1]), t("report.median")], [order, t("report.agreement")]];
    return h("dl", { id: "numbers", class: "facts" }, ...facts.map(([value, name]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  lane(/** @type {ReportVideo} */ video) {
    const link = this.linkTo(video, 0);
    const track = h("div", { class: "track", role: "group", "aria-label": `${video.name}, ${formatTime(video.duration_s)}` }, ...video.runs.map(run => {
      const moment = this.linkTo(video, run.start_s);
      const block = h("button", { type: "button", style: `background: ${this.colour(run.activity)}`, title: `${this.numbered(run.activity)}\n${formatSpan(run)}`,
        "aria-label": `${this.label(run.activity)}, ${formatSpan(run)}`, onclick: () => this.choose(run.activity),
        ondblclick: () => { if (moment) location.hash = moment; } }, this.places.has(run.activity) ? run.activity : "");
      this.blocks.push([block, run, video]);
      return block;
    }));
    return h("div", { class: "lane" }, h(link ? "a" : "span", { class: "name ellipsis", title: video.name, ...(link ? { href: link } : {}) }, video.name), track);
  }

  layout() {
    const isSame = this.same.checked;
    for (const [block, run, video] of this.blocks) {
      const whole = isSame ? video.duration_s : this.longest;
      block.style.left = `${100 * run.start_s / whole}%`;
      block.style.width = `${100 * (run.end_s - run.start_s) / whole}%`;
    }
    fill(this.axis, ...[0, 1, 2, 3, 4, 5, 6].map(i => h("span", { style: `left: ${100 * i / 6}%` }, isSame ? `${Math.round(100 * i / 6)} %` : formatTime(this.longest * i / 6))));
  }

  choose(/** @type {number} */ number) {
    this.chosen = this.chosen === number ? 0 : number;
    for (const [block, run] of this.blocks) block.classList.toggle("dim", this.chosen > 0 && run.activity !== this.chosen);
    for (const [each, card] of this.cards) card.setAttribute("aria-pressed", String(each === this.chosen));
    const activity = this.data.activities[this.chosen - 1];
    this.status.textContent = activity ? t("report.chosen", { name: this.numbered(this.chosen), videos: t("count.videos", { n: activity.num_videos }), time: formatTime(activity.total_s) }) : "";
  }

  card(/** @type {Activity} */ activity) {
    const { number } = activity, { videos, pictures } = this.data, present = videos.filter(video => video.seconds[number - 1] > 0), encoded = pictures[number - 1];
    const text = this.isShared ? t("report.usually", { n: activity.num_videos, total: videos.length, time: formatTime(activity.usual_s) }) : `${present[0].name} · ${formatTime(activity.total_s)}`;
    const button = h("button", { type: "button", class: "card activity", "aria-pressed": "false", style: `--dot: ${this.colour(number)}`, onclick: () => this.choose(number) },
      encoded ? h("div", { class: "picture" }, h("img", { src: `data:image/jpeg;base64,${encoded}`, alt: "", loading: "lazy" })) : null,
      h("div", { class: "card-text" }, h("h3", { class: "card-title two-lines" }, this.chip(number), ` ${activity.label ?? t("report.activity", { number })}`), h("p", { class: "small soft" }, text),
        h("div", { class: "presence", role: "img", "aria-label": t("report.in", { names: present.map(video => video.name).join(", ") }) }, ...videos.map(video => h("i", { title: video.name, class: present.includes(video) ? "on" : "" })))));
    this.cards.set(number, button);
    return h("li", {}, button);
  }

  rare() {
    const rare = this.data.activities.filter(activity => !this.places.has(activity.number));
    return rare.length ? h("p", { class: "soft small" }, t("report.rare", { n: rare.length, time: formatTime(rare.reduce((sum, activity) => sum + activity.total_s, 0)) })) : null;
  }

  chip(/** @type {number} */ number) { return h("span", { class: "number-chip", style: `background: ${this.colour(number)}` }, number); }

  differences() {
    /** @type {string[]} */
    const usual = [];
    const cards = this.data.videos.map(video => {
      /** @type {HTMLElement[]} */
      const rows = [];
      for (const { activity, times } of video.took_long) rows.push(h("li", {}, this.chip(activity), ` ${this.data.activities[activity - 1].label ? this.label(activity) : ""} ${t("report.took", { times: times.toFixed(1) })}`));
      const own_s = video.runs.filter(run => !this.places.has(run.activity)).reduce((sum, run) => sum + run.end_s - run.start_s, 0);
      if (own_s) rows.push(h("li", {}, t("report.own", { time: formatTime(own_s) })));
      if (!rows.length) { usual.push(video.name); return null; }
      return h("section", { class: "card difference" }, h("h3", { class: "ellipsis" }, video.name), h("ul", {}, ...rows));
    });
    return h("section", { id: "differences", class: "stack" }, h("h2", {}, t("report.differs")), h("p", { class: "soft small" }, t("report.differs_text")),
      h("div", { id: "cards", class: "cards wide" }, ...cards), usual.length ? h("p", { class: "soft small" }, t("report.usual", { names: usual.join(", ") })) : null);
  }

  table() {
    const { videos } = this.data, body = h("tbody"), head = h("tr"), order = { column: -1, isUp: true };
    /** @type {[string | number, (video: ReportVideo) => any][]} */
    const columns = [[t("report.video"), video => video.name], [t("report.length"), video => video.duration_s], ...this.shown.map(({ number }) => /** @type {[number, (video: ReportVideo) => number]} */ ([number, video => video.seconds[number - 1]]))];
    const fillRows = () => {
      const rows = [...videos];
      if (order.column >= 0) { const key = columns[order.column][1]; rows.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (order.isUp ? 1 : -1)); }
      fill(body, ...rows.map(video => h("tr", {}, h("th", { scope: "row", title: video.name }, video.name), h("td", {}, formatTime(video.duration_s)), ...this.shown.map(({ number }) => {
        const seconds = video.seconds[number - 1], strength = Math.round(10 + 25 * Math.min(1, seconds / video.duration_s * 4));
        return seconds ? h("td", { style: `background: color-mix(in srgb, ${this.colour(number)} ${strength}%, transparent)` }, formatTime(seconds)) : h("td", { class: "soft" }, "–");
      }))));
    };
    columns.forEach(([name], i) => {
      const isActivity = typeof name === "number", cell = h("th", { scope: "col" });
      cell.append(h("button", { type: "button", class: "sort", ...(isActivity ? { title: this.label(name), "aria-label": t("report.sort", { name: this.label(name) }) } : {}), onclick: () => {
        order.isUp = order.column === i ? !order.isUp : i === 0;
        order.column = i;
        for (const other of head.children) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", order.isUp ? "ascending" : "descending");
        fillRows();
      } }, isActivity ? this.chip(name) : name));
      head.append(cell);
    });
    fillRows();
    const total = h("tr", {}, h("th", { scope: "row" }, t("report.in_all")), h("td", {}, formatTime(videos.reduce((sum, video) => sum + video.duration_s, 0))), ...this.shown.map(activity => h("td", {}, formatTime(activity.total_s))));
    return h("section", { class: "stack" }, h("h2", {}, t("report.times")), h("div", { class: "scroll panel", tabIndex: 0, role: "region", "aria-label": t("report.times") },
      h("table", { id: "table" }, h("caption", {}, t("report.times_text")), h("thead", {}, head), body, h("tfoot", {}, total))));
  }
}
