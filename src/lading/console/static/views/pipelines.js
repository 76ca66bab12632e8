// Pipelines: what their runs made of the messages, and expectations over time.
import { get } from "../api.js";
import { count, h, moment, redraw, table, visible } from "../dom.js";
import { barCell, columns } from "./charts.js";

export const title = () => "Pipelines";
const OUTCOMES = ["good", "routed", "quarantined"];

export async function render(main, context) {
  const place = h("div");
  main.append(h("div", { class: "bar" }, h("h1", {}, "Pipelines"), h("span", { class: "soft legend" }, OUTCOMES.map((one) => [h("i", { class: one }), one]))), place);
  await context.every(5, async () => {
    const found = await get("/api/pipelines", {}, context.signal);
    redraw(place, found.pipelines.length ? found.pipelines.map(pipeline) : h("p", { class: "empty" }, "Start the console with ", h("code", {}, "--pipeline FILE"), " to see the runs of a pipeline; repeat it for several."));
  });
}

function bars(batches, parts, label) {
  const kind = (name) => (OUTCOMES.includes(name) ? name : "quarantined");
  return columns(label, "batch, time (UTC)", batches.map((one) => [`${one.number}, ${moment(one.written_us).slice(0, 19)}`, parts(one).map(([name, value]) => [name, value, kind(name)])]));
}

function pipeline(one) {
  const name = h("h2", {}, visible(one.id), " ", h("span", { class: "soft" }, visible(one.name)));
  if (one.error) return [name, h("div", { class: "warning" }, h("p", {}, visible(one.error)))];
  const { totals } = one;
  const read = totals.read ?? 0;
  const share = (value) => (read ? ` ${((100 * value) / read).toFixed(1)} %` : "");
  const last = one.batches.at(-1);
  const most = Math.max(1, ...one.reasons.map((reason) => reason.messages));
  return [name,
    h("div", { class: "cards-row" }, h("div", { class: "card" }, "read", h("b", {}, count(read)), last ? `last batch ${moment(last.written_us).slice(0, 19)} UTC` : "no batch yet"),
      OUTCOMES.map((key) => h("div", { class: "card" }, key, h("b", {}, count(totals[key] ?? 0)), share(totals[key] ?? 0)))),
    h("h3", {}, "Messages by batch"), bars(one.batches, (batch) => OUTCOMES.map((key) => [key, batch[key]]), "messages by batch"),
    h("div", { class: "two" },
      h("section", {}, h("div", { class: "bar small" }, h("h3", {}, "Why messages failed"), h("a", { href: `/failures?pipeline=${encodeURIComponent(one.name)}` }, "quarantine")), one.reasons.length
        ? table(["reason", ["", "barcell"], ["messages", "n"]], one.reasons.map((reason) => [[reason.reason.replaceAll("_", " "), " ", h("b", {}, visible(reason.header ?? ""))], barCell(reason.messages, most, ""), count(reason.messages)])) : h("p", { class: "soft" }, "Nothing failed.")),
      h("section", {}, h("h3", {}, "Destinations"), table(["destination", ["messages", "n"]], Object.entries(one.to).map(([key, value]) => [visible(key), count(value)])))),
    one.expectations.length ? [h("h3", {}, "Expectations that did not hold, by batch"), one.expectations.map((key) => [h("p", { class: "soft" }, visible(key), `: ${count(totals[`expect.${key}`] ?? 0)} messages`), bars(one.batches, (batch) => [["did not hold", batch.expectations[key] ?? 0]], `messages for which ${key} did not hold`)])] : null];
}
