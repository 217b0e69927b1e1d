// The data of the page, as the server sends it and as components pass it on. Only the type checker reads this file.

interface Span { start_s: number; end_s: number }
type Child = Node | string | number | null | undefined | false;
type Address = Record<string, string>;
type Change = Record<string, string | null | undefined>;

/** What the server answered; the version is null for what has none. */
interface Versioned { body: any; version: string | null }
/** An error response; the version is the current one of the document. */
interface ServerError extends Error { status: number; version: string | null }
interface Server {
  version: string; model: string; corpus: boolean; words: boolean; search_threshold: number;
  exports: string[]; uploads: boolean; folders: boolean; history: boolean;
}
interface User { name: string; role: "view" | "edit" | "admin"; sign_in: boolean }
interface Job {
  id: string; video: string; name: string; user: string; state: string; message: string;
  position: number | null; done_s: number; duration_s: number | null; left_s: number | null;
}

/** A view of the page. show() may be called again with another address; isCurrent says whether it is still wanted. */
interface View {
  root: HTMLElement;
  show: (address: Address, isCurrent: () => boolean) => Promise<void>;
  hide: () => void;
}

// Videos and their steps

interface VideoFile { name: string; start_s: number; duration_s: number }
interface Video {
  id: string; name: string; pictures: boolean; playable: boolean; read: boolean; edited: boolean; truth: boolean;
  indexed: boolean; duration_s: number | null; files: VideoFile[];
}
/** A video in the list of all of them. */
interface ListedVideo {
  id: string; name: string; pictures: boolean; playable: boolean; read: boolean; edited: boolean; num_files: number;
  duration_s: number | null; num_steps: number | null; folder: string; date: string; first_steps: string[];
}
/** What learning from corrections has changed. */
interface Learned {
  num_names?: number; num_steps: number; num_videos: number; num_named_anew: number;
  videos: { id: string; video: string; steps: (Span & { before: string | null; after: string | null })[] }[];
}
type Facets = Record<string, { value: string; num: number }[]>;

interface Word { text: string; probability: number }
interface Named { label?: string | null; probability?: number | null; words?: Word[] }
interface Step extends Span {
  id: string; thread: number; label: string | null; probability: number | null;
  parent: string | null; children: string[]; background?: boolean; origin: "model" | "person" | "imported"; words?: Word[];
}
interface Hierarchy { duration_s: number; levels: { steps: Step[] }[]; max_steps?: number }
/** A step with its place, its title and its activity, which means the same on every level. */
interface StepEntry { step: Step; level: number; index: number; title: string; activity: number }
type Entries = Map<string, StepEntry>;
/** A step in the list of chapters; chain has the steps of coarser levels with the same span, too. */
interface Chapter { entry: StepEntry; title: string; chain: string[]; children: Chapter[] }
/** An activity that is done more than once. */
interface Repeated { activity: number; steps: Step[]; seconds: number; name: string | null }
interface Utterance extends Span { text: string }
/** A row of the timeline that is not a level: speech, or annotations. */
interface ExtraRow { name: string; kind: string; steps: (Span & { text: string; thread?: number })[] }

// Questions and answers

interface Match extends Span { probability: number; rests_on?: string; quote?: string }
interface Answer { query: string; present: boolean; probability: number; matches: Match[] }
interface Question { text: string; answer: Answer; showsAll: boolean }
/** A moment that a search over all videos has found. */
interface Hit extends Span {
  id: string | null; video: string; step: string; label: string | null; probability: number; pictures: boolean; level: number;
  rests_on?: string | null; quote?: string | null; file?: string; file_start_s?: number;
}
interface Clip extends Span { src: string }

// What components tell their owners

type Timeline = import("./video/timeline.js").Timeline;
/** A row of the timeline and where it is drawn. */
interface Row {
  kind: "ruler" | "level" | "question" | "extra"; y: number; height: number;
  level?: number; question?: { text: string; matches: Match[] }; extra?: ExtraRow;
}
interface Point { time: number; title: string; x: number; box: DOMRect }
interface TimelineEvents {
  onSeek: (time: number) => void; onSelect: (entry: StepEntry) => void; onRename: (id: string, box: DOMRect) => void;
  onMoveStart: (id: string, time: number) => void; onPoint: (point: Point | null) => void;
  onRemoveQuestion: (text: string) => void; onChooseQuestion: (text: string) => void;
  canEdit: () => boolean; limits: (id: string) => { low: number; high: number };
}
interface ChapterEvents {
  onChoose: (entry: StepEntry) => void; onRename: (id: string, box: DOMRect) => void; canEdit: () => boolean;
  pictureUrl: (entry: StepEntry) => string | null;
}
interface AnswerEvents {
  onChoose: (match: Match) => void; onAsk: (text: string) => void; onShowAll: (question: Question) => void;
  pictureUrl: (time: number) => string | null; clipOf: (match: Match) => Clip | null;
}
type Commands = Record<"rename" | "split" | "merge" | "earlier" | "later" | "undo" | "redo" | "revert" | "zoomIn" | "zoomOut" | "fit" | "link" | "recipe", () => void>
  & { recut: (k: number) => void; tab: (name: "chapters" | "answers") => void };

// Reports

/** The report of one video. */
interface VideoReportData {
  name: string; model: string; duration_s: number; levels: ReportStep[][]; questions: Answer[]; speech: Utterance[];
  files: (VideoFile & { places: string[] })[];
}
interface ReportStep extends Step { likely: Word[]; picture?: string | null }
/** The report of a folder. */
interface FolderReportData {
  title: string; model: string; agreement: number; activities: Activity[]; videos: ReportVideo[]; pictures: (string | null)[];
  errors?: string[];
}
interface Activity { number: number; label: string | null; num_videos: number; total_s: number; usual_s: number }
interface Run extends Span { activity: number }
interface ReportVideo {
  id?: string; name: string; duration_s: number; runs: Run[]; seconds: number[];
  took_long: { activity: number; times: number }[];
}
