// @ts-check
// The data of the video view, as the server sends it.

/**
 * @typedef {{ id: string, start_s: number, end_s: number, thread: number, label: string | null, probability: number | null,
 *   score?: number | null, parent: string | null, children: string[], background?: boolean,
 *   origin: "model" | "person" | "imported" }} Step
 * @typedef {{ duration_s: number, levels: { steps: Step[] }[], max_steps?: number }} Hierarchy
 * @typedef {{ name: string, start_s: number, duration_s: number }} VideoFile
 * @typedef {{ id: string, name: string, pictures: boolean, playable: boolean, read: boolean, edited: boolean, truth: boolean,
 *   indexed: boolean, duration_s: number | null, files: VideoFile[] }} Video
 * @typedef {{ start_s: number, end_s: number, probability: number, rests_on?: string, quote?: string }} Match
 * @typedef {{ query: string, present: boolean, probability: number, matches: Match[] }} Answer
 * @typedef {{ start_s: number, end_s: number, text: string }} Utterance
 * @typedef {{ step: Step, level: number, index: number, title: string, activity: number }} StepEntry
 * @typedef {{ name: string, kind: string, steps: { start_s: number, end_s: number, text: string, thread?: number }[] }} ExtraRow
 */

export {};
