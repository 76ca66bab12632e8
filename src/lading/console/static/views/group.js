// One group: its lag over time and by partition, its members; moved to another position, or deleted.
import { get, post } from "../api.js";
import { ask, count, errorBox, h, plural, redraw, table, toast, visible } from "../dom.js";
import { overTime } from "./charts.js";

export const title = (params) => params.get("group") ?? "Group";
const REFRESH_S = 3;

export async function render(main, context) {
  const [protocol, group] = [context.params.get("protocol") ?? "", context.params.get("group") ?? ""];
  const place = h("div");
  let topics = [];
  const buttons = context.about.is_read_only ? null : [
    h("button", { type: "button", onclick: () => reset({ protocol, group }, topics) }, "Move…"),
    h("button", { type: "button", onclick: () => remove({ protocol, group }, context) }, "Delete…")];
  main.append(h("div", { class: "bar" }, h("h1", {}, h("a", { href: "/groups", class: "soft", title: "All groups" }, "Groups"), h("span", { class: "soft" }, " / "), visible(group)), h("span", { class: "grow" }), buttons), place);
  await context.every(REFRESH_S, async () => {
    const found = await get("/api/group", { protocol, group }, context.signal);
    topics = found.topics;
    const cards = [["protocol", found.protocol], ["state", found.state], ["members", count(found.members.length)], ["lag", count(found.lag)], ["partitions", count(found.partitions_count)]];
    redraw(place,
      h("div", { class: "cards-row" }, cards.map(([label, value]) => h("div", { class: "card" }, label, h("b", {}, value)))),
      found.filter ? h("p", {}, "Members get only messages with ", h("code", {}, visible(found.filter.where)), found.filter.suspended_by === null ? "" : ["; suspended: a member of group ", visible(found.filter.suspended_by), " has the same client.id"]) : null,
      found.samples.length > 1 ? [h("h2", {}, "Lag"), overTime("lag", found.samples)] : null,
      h("h2", {}, "Positions"), positions(found),
      h("h2", {}, "Members"), found.members.length ? h("ul", {}, found.members.map((one) => h("li", {}, visible(one)))) : h("p", { class: "empty" }, "Nobody reads in this group now: it can be moved."));
  });
}

function positions(found) {
  if (!found.partitions.length) return h("p", { class: "empty" }, "The group has no position yet.");
  const left = found.partitions_count - found.partitions.length;
  return [table(["topic", ["partition", "n"], ["position", "n"], ["end", "n"], ["lag", "n"]], found.partitions.map((one) => [
    h("a", { href: `/topic?topic=${encodeURIComponent(one.topic)}` }, visible(one.topic)),
    h("a", { href: `/messages?topic=${encodeURIComponent(one.topic)}&partition=${one.partition}&at=${one.position}&order=old`, title: "the messages that come next" }, one.partition),
    count(one.position), count(one.end), h("span", { class: one.lag ? "behind" : "" }, count(one.lag))])),
  left ? h("p", { class: "soft" }, `and ${plural(left, "more partition")}`) : null];
}

async function reset(which, topics) {
  const to = h("input", { type: "text", value: "earliest", spellcheck: "false", "aria-label": "New position" });
  const topic = h("select", { "aria-label": "Topic" }, h("option", { value: "" }, "all topics"), topics.map((one) => h("option", { value: one }, visible(one))));
  const isSure = await ask("Move the group", [
    h("p", {}, "It goes on at ", h("code", {}, "earliest"), ", ", h("code", {}, "latest"), ", an offset, ", h("code", {}, "-100"), " for the last hundred of each partition, a time such as ", h("code", {}, "2026-01-31T12:00"), ", or ", h("code", {}, "+100"), " and ", h("code", {}, "back 100"), " from where it is."),
    h("div", { class: "row" }, to, " in ", topic)], "Show what changes", { focus: to });
  if (!isSure) return;
  const document = { ...which, ...placeOf(to.value.trim()), topics: topic.value ? [topic.value] : [] };
  try {
    const would = await post("/api/group/reset", { ...document, dry_run: true });
    if (!(await agree(would))) return;
    const did = await post("/api/group/reset", { ...document, dry_run: false });
    toast(`moved in ${plural(did.moved, "partition")}`);
  } catch (error) {
    await ask("The group was not moved", [errorBox(error)], "Close");
  }
}

function placeOf(text) {
  const moved = /^(\+|back )\s*(\d{1,15})$/.exec(text);
  if (!moved) return { to: text };
  return { shift: moved[1] === "+" ? Number(moved[2]) : -Number(moved[2]) };
}

async function agree(would) {
  const rows = table(["topic", ["partition", "n"], ["position", "n"], ["new position", "n"]], would.partitions.slice(0, 200).map((one) => [visible(one.topic), one.partition, count(one.position), h("b", {}, count(one.new_position))]));
  const more = would.partitions_count > 200 ? h("p", { class: "soft" }, `and ${plural(would.partitions_count - 200, "more partition")}`) : null;
  if (would.members) {
    await ask("The group has members", [h("p", {}, `Stop its ${plural(would.members, "member")} first: they would go on from where they are.`), rows, more], "Close");
    return false;
  }
  if (!would.moved) {
    await ask("Nothing changes", [h("p", {}, "The group is there already."), rows, more], "Close");
    return false;
  }
  return ask("Move the group", [rows, more], `Move in ${plural(would.moved, "partition")}`);
}

async function remove(which, context) {
  const isSure = await ask("Delete the group", [h("p", {}, "The group ", h("b", {}, visible(which.group)), " loses its positions. Messages stay.")], "Delete", { danger: true });
  if (!isSure) return;
  try {
    await post("/api/group/delete", which);
    toast(`deleted ${which.group}`);
    context.go("/groups");
  } catch (error) {
    await ask("The group was not deleted", [errorBox(error)], "Close");
  }
}
