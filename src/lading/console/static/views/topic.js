// One topic: its partitions, the groups and channels that read it, its settings.
import { get } from "../api.js";
import { copy, count, h, rate, redraw, size, table, visible } from "../dom.js";
import { pageOf } from "./groups.js";
import { changeSettings, deleteTopic, emptyTopic } from "./topic_changes.js";

export const title = (params) => params.get("topic") ?? "Topic";

export function tabs(topic, current, context) {
  const name = encodeURIComponent(topic);
  const pages = [["/topic", "Overview"], ["/messages", "Messages"], ["/headers", "Headers"]];
  if (context.about.can_send) pages.push(["/send", "Send"]);
  return h("div", { class: "bar" }, h("h1", {}, h("a", { href: "/", class: "soft", title: "All topics" }, "Topics"), h("span", { class: "soft" }, " / "), visible(topic)),
    h("span", { class: "grow" }),
    h("nav", { class: "tabs", "aria-label": "Topic" }, pages.map(([path, label]) => h("a", { href: `${path}?topic=${name}`, "aria-current": path === current ? "page" : null }, label))));
}

export async function render(main, context) {
  const topic = context.params.get("topic") ?? "";
  const place = h("div");
  main.append(tabs(topic, "/topic", context), place);
  let last = null;
  await context.every(2, async () => {
    const found = await get("/api/topic", { topic }, context.signal);
    const speed = last ? Math.max(0, (found.end_sum - last.end_sum) / (found.at_s - last.at_s)) : null;
    last = found;
    const cards = [["messages", count(found.messages)], ["size", size(found.size_bytes)], ["rate", rate(speed)], ["partitions", count(found.partitions_count)], ["groups", found.groups.length ? count(found.groups.length) : "–"]];
    redraw(place,
      h("div", { class: "cards-row" }, cards.map(([label, value]) => h("div", { class: "card" }, label, h("b", {}, value)))),
      found.damage.length ? h("div", { class: "warning", role: "alert" }, found.damage.map((one) => h("p", {}, visible(one)))) : null,
      h("h2", {}, "Groups and channels"), groups(found, context),
      h("h2", {}, "Partitions"), partitions(found, topic),
      found.table ? engines(found.table) : null,
      h("h2", {}, "Settings"), changes(found, context), Object.keys(found.settings).length ? [table(["setting", "value"], Object.entries(found.settings).map(([key, value]) => [key, visible(String(value))]))] : null);
  });
}

function engines(found) {
  // the address of the topic's table, and what to write in each engine: copied without the escapes that the page shows
  const button = (label, text, what) => h("button", { type: "button", "aria-label": `Copy ${what}`, onclick: () => copy(text, what) }, label);
  return [h("h2", {}, "Table"),
    h("p", {}, "An Iceberg table of this topic: ", h("code", {}, visible(found.name)), " ", button("Copy", found.name, "the table's name")),
    h("p", { class: "buttons-row" }, "Copy a query for ", found.blocks.map((one) => [button(one.engine, one.text, `the block for ${one.engine}`), " "])),
    h("details", {}, h("summary", {}, "Show them"), found.blocks.map((one) => [h("h3", {}, one.engine), h("pre", {}, visible(one.text, true))]))];
}

function changes(found, context) {
  if (!context.about.can_send) return null;
  return h("p", { class: "buttons-row" }, context.about.is_broker ? h("button", { type: "button", onclick: () => changeSettings(found.name, context) }, "Change settings…") : null,
    " ", context.about.is_broker ? h("button", { type: "button", onclick: () => emptyTopic(found.name, found.messages, context) }, "Empty…") : null,
    " ", h("button", { type: "button", onclick: () => deleteTopic(found.name, found.messages, context) }, "Delete the topic…"));
}

function groups(found, context) {
  if (!context.about.has_groups) return h("p", { class: "empty" }, "Groups are shown for a broker of Lading and for a Kafka cluster.");
  if (!found.groups.length) return h("p", { class: "empty" }, "No group has read this topic yet.");
  return table(["group", "protocol", "state", ["members", "n"], ["lag", "n"], "by partition"], found.groups.map((one) => [
    h("span", {}, h("a", { href: pageOf(one) }, visible(one.group)), filterOf(one)), one.protocol, one.state, count(one.members.length), h("span", { class: one.lag ? "behind" : "" }, count(one.lag)), one.lag === null ? h("span", { class: "soft" }, "reads nothing: keeps which transactions were decided") : lagBars(one.partitions)]));
}

function filterOf(group) {
  if (!group.filter) return null;
  const suspended = group.filter.suspended_by === null ? "" : `, suspended: a member of group ${group.filter.suspended_by} has the same client.id`;
  return h("div", { class: "soft" }, "only ", visible(group.filter.where), suspended);
}

function lagBars(partitions) {
  const most = Math.max(1, ...partitions.map((one) => one.lag));
  return h("span", { class: "lags" }, partitions.slice(0, 64).map((one) => {
    const bar = h("i", { title: `partition ${one.partition}: at ${count(one.position)} of ${count(one.end)}, lag ${count(one.lag)}` });
    bar.style.height = `${2 + (14 * one.lag) / most}px`;
    if (one.lag) bar.className = "behind";
    return bar;
  }));
}

function partitions(found, topic) {
  const states = [...new Set(found.partitions.flatMap((one) => Object.keys(one.states)))].filter((one) => one !== "available");
  return table([["partition", "n"], ["first offset", "n"], ["end offset", "n"], ["messages", "n"], ["size", "n"], ["epoch", "n"], ...states.map((one) => [one.replaceAll("_", " "), "n"])],
    found.partitions.map((one) => [h("a", { href: `/messages?topic=${encodeURIComponent(topic)}&partition=${one.partition}` }, one.partition),
      count(one.first_offset), count(one.end_offset), count(one.messages), size(one.size_bytes), count(one.epoch), ...states.map((state) => count(one.states[state] ?? 0))]));
}
