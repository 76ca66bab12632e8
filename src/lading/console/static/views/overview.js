// Above the topics: whether the broker is well, how full its disk is, what arrives, which certificates end, what failed today.
import { count, h, rate, size, visible } from "../dom.js";
import { overTime } from "./charts.js";

const SOON_DAYS = 30;

export function overview(found) {
  if (!found.reported) return found.status ? h("p", { class: "soft" }, "The broker is ", h("b", {}, found.status), ".") : null;
  const [incoming, outgoing] = [found.rates.messages_in, found.rates.messages_out];
  const last = (rates) => (rates.length ? rate(rates.at(-1)[1]) : "–");
  const share = found.disk.total_bytes ? found.disk.free_bytes / found.disk.total_bytes : null;
  const cards = [
    ["health", found.status, found.status === "ok" ? "" : "bad"],
    ["in", last(incoming), ""], ["out", last(outgoing), ""],
    [share === null ? "disk" : `disk free, ${Math.floor(100 * share)} %`, found.disk.free_bytes === null ? "gone" : size(found.disk.free_bytes), share === null || share < 0.1 ? "bad" : ""],
    ["memory", size(found.memory_bytes), ""],
    ["up", span(found.uptime_s), ""],
    ["dead today", count(found.letters_today), found.letters_today ? "behind" : ""],
  ];
  const ending = found.certificates.map((one) => ({ ...one, days: (one.expires_s - found.now_s) / 86400 })).filter((one) => one.days < SOON_DAYS);
  return [
    h("div", { class: "cards-row" }, cards.map(([label, value, kind]) => h("div", { class: "card" }, label === "dead today" ? h("a", { href: "/failures", title: "dead letters since midnight UTC" }, "dead letters") : label, h("b", { class: kind }, value)))),
    h("p", { class: "soft" }, `Lading ${found.version}, durability ${found.durability}; ${count(found.totals.messages_in)} messages in and ${count(found.totals.messages_out)} out since the start`),
    ending.length ? h("div", { class: "warning", role: "alert" }, ending.map((one) => h("p", {}, "The certificate of ", h("b", {}, visible(one.endpoint)), one.days <= 0 ? " has expired: clients refuse it." : ` expires in ${Math.floor(one.days)} days.`, " Replace the file; the broker need not be restarted."))) : null,
    incoming.length > 1 ? h("details", { class: "rates" }, h("summary", {}, "Messages a second, last hour"), h("h3", {}, "In"), overTime("in", incoming), h("h3", {}, "Out"), overTime("out", outgoing)) : null,
  ];
}

export function span(seconds) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([unit]) => seconds >= unit);
  if (at < 0) return "0 s";
  const [unit, name] = parts[at];
  const rest = parts[at + 1] ? Math.floor((seconds % unit) / parts[at + 1][0]) : 0;
  return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${parts[at + 1][1]}` : ""}`;
}
