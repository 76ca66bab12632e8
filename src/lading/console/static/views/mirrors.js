// Mirrors: which systems, how far, and the fidelity table of a report.
import { get } from "../api.js";
import { count, h, redraw, table, visible } from "../dom.js";

export const title = () => "Mirrors";

export async function render(main, context) {
  const place = h("div");
  main.append(h("div", { class: "bar" }, h("h1", {}, "Mirrors")), place);
  await context.every(5, async () => {
    const found = await get("/api/mirrors", {}, context.signal);
    redraw(place, found.mirrors.length ? found.mirrors.map(mirror) : h("p", { class: "empty" }, "No mirror of this user has run on this machine. ", h("code", {}, "lading mirror SRC DST --report fidelity.json"), " makes one; ", h("code", {}, "--mirror fidelity.json"), " shows its report here."));
  });
}

function service(one) {
  const head = h("h2", {}, visible(one.name), " ", h("span", { class: "badge" }, visible(one.status ?? "service")));
  const cells = (row) => [h("b", {}, visible(row.name)), h("span", { class: row.state === "running" ? null : "bad" }, visible(row.state ?? "?")), `${row.source ?? "?"} → ${row.target ?? "?"}`,
    row.lag_messages === null ? "–" : count(row.lag_messages), row.messages_per_s === null ? "–" : count(row.messages_per_s), count(row.messages ?? 0), visible(row.last_sent ?? "–"), visible(row.last_error ?? "")];
  return [head, one.mirrors.length ? table(["mirror", "state", "systems", ["lag", "n"], ["messages a second", "n"], ["sent", "n"], "last sent", "last error"], one.mirrors.map(cells)) : h("p", { class: "empty" }, "This service has no mirrors.")];
}

function mirror(one) {
  if (one.error) return [h("h2", {}, visible(one.name)), h("div", { class: "warning" }, h("p", {}, visible(one.error)))];
  if (one.service) return service(one);
  const head = h("h2", {}, visible(one.source ?? "?"), " → ", visible(one.target ?? "?"), one.running ? h("span", { class: "badge" }, "running") : null, one.report ? h("span", { class: "badge" }, "report") : null);
  const facts = h("p", { class: "soft" }, visible(one.name), one.messages === undefined ? "" : `; ${count(one.messages)} messages in ${one.seconds} s, carrier ${one.carrier}`);
  const columns = one.topics?.length ? Object.keys(one.topics[0]).filter((key) => typeof one.topics[0][key] !== "object") : [];
  const named = { topic: "topic", messages: one.report ? "messages" : "copied up to" };
  return [head, facts,
    columns.length ? table(columns.map((key) => [named[key] ?? key.replaceAll("_", " "), typeof one.topics[0][key] === "number" ? "n" : ""]), one.topics.map((topic) => columns.map((key) => (typeof topic[key] === "number" ? count(topic[key]) : visible(String(topic[key])))))) : h("p", { class: "empty" }, "Nothing has been copied yet."),
    one.fidelity ? [h("h3", {}, "Fidelity"), table(["fact", ["messages", "n"], ["exact", "n"], ["by carrier", "n"], ["lost", "n"], "what is counted"], one.fidelity.map((row) => [visible(row.fact), count(row.messages), count(row.exact), count(row.rebuilt), row.lost ? h("b", { class: "bad" }, count(row.lost)) : count(row.lost), h("span", { class: "soft" }, visible(row.counted))]))] : null];
}
