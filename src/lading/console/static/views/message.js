// One message, whole: each header with its kind and bytes, the payload as text, JSON and hex; copies are exact.
import { post } from "../api.js";
import { ask, copy, count, errorBox, fill, h, masked, moment, plural, size, toast, visible, visibleOrEmpty } from "../dom.js";
import { inBase } from "../place.js";

const SHOWN_AT_ONCE = 50_000; // characters of a payload; the next ones by a button, all of it can be copied and saved
const VALUE_MAX = 4096; // characters of a key, or of a header and its value
const INDENT_MAX = 40; // levels: white space would outgrow what is deeper
const HEADERS_AT_ONCE = 500;
const STATES = ["available", "unavailable", "poisoned", "marked_for_deletion"];

export function bytesOf(base64) {
  return base64 === null ? null : Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
}

export function textOf(bytes) {
  // null if they are not UTF-8
  try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return null; }
}

export const hexOf = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");

export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 32_768); at += 16) {
    const part = bytes.subarray(at, at + 16);
    const digits = Array.from(part, (one) => one.toString(16).padStart(2, "0"));
    const left = `${digits.slice(0, 8).join(" ").padEnd(23)}  ${digits.slice(8).join(" ").padEnd(23)}`;
    lines.push(`${at.toString(16).padStart(8, "0")}  ${left}  ${Array.from(part, (one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("")}`);
  }
  if (bytes.length > 32_768) lines.push(`… ${count(bytes.length - 32_768)} more bytes; copy or save to have them`);
  return lines.join("\n");
}

function cut(text, at) {
  // the first characters; never half of one
  if (text.length <= at) return text;
  const isPair = /[\ud800-\udbff]/.test(text[at - 1]) && /[\udc00-\udfff]/.test(text[at]);
  return text.slice(0, isPair ? at - 1 : at);
}

const shortened = (text, lines = false) => [visibleOrEmpty(cut(text, VALUE_MAX), lines), text.length > VALUE_MAX ? h("span", { class: "soft" }, ` … ${count(text.length - VALUE_MAX)} more characters`) : null];

function shortenedBytes(bytes, text) {
  // what is no text stands as hex
  if (text !== null) return shortened(text, true);
  const left = bytes.length - VALUE_MAX;
  return [h("span", { class: "soft" }, "0x"), hexOf(bytes.subarray(0, VALUE_MAX)), left > 0 ? h("span", { class: "soft" }, ` … ${plural(left, "more byte")}`) : null];
}

const copyButton = (label, what, make) => h("button", { type: "button", class: "mini", title: `Copy ${what}`, onclick: () => copy(make(), what) }, label);

function copyButtons(bytes, text, base64, value, inBytes = value) {
  return [text === null ? null : copyButton("text", `${value} as text`, () => text), copyButton("hex", `${inBytes} as hex`, () => hexOf(bytes)), copyButton("b64", `${inBytes} in base64`, () => base64)];
}

function headerRow(one) {
  const bytes = bytesOf(one.value);
  const text = bytes === null ? null : one.text ?? textOf(bytes);
  const shown = one.masked ? masked() : bytes === null ? h("span", { class: "null" }, "null") : shortenedBytes(bytes, text);
  return h("tr", {}, h("td", { class: "key" }, shortened(one.key)), h("td", { class: `kind kind-${one.kind.startsWith("kind ") ? "raw" : one.kind}` }, one.kind),
    h("td", { class: "value" }, h("div", { class: "clip" }, shown)), h("td", { class: "n soft" }, bytes === null ? "" : size(bytes.length)),
    h("td", { class: "actions" }, bytes === null ? null : copyButtons(bytes, text, one.value, "the value", "the bytes")));
}

function decodedView(decoded) {
  // the payload by the schema that it names, beside its bytes
  if (!decoded) return [];
  const link = decoded.schema === null ? null : decoded.url === null ? h("span", { class: "soft" }, decoded.schema) : h("a", { href: decoded.url, target: "_blank", rel: "noreferrer" }, decoded.schema);
  const text = decoded.text === null ? null : /^\s*[[{]/.test(decoded.text) ? indent(decoded.text) : decoded.text;
  return [h("div", { class: "bar small" }, h("h3", {}, "Decoded"), link, h("span", { class: "grow" }),
    text === null ? null : h("button", { type: "button", class: "mini", onclick: () => copy(decoded.text, "the payload as JSON") }, "copy JSON")),
    text === null ? h("p", { class: "bad" }, visible(decoded.problem)) : h("pre", { class: "payload decoded" }, visible(cut(text, SHOWN_AT_ONCE), true))];
}

function payloadView(whole) {
  const bytes = bytesOf(whole.payload);
  const hidden = whole.masked?.payload ?? null;
  if (hidden === "all") return [h("h3", {}, "Payload"), h("p", {}, masked(), h("span", { class: "soft" }, " It is not JSON, so that nothing says where its masked fields are."))];
  if (bytes === null) return [h("h3", {}, "Payload"), h("p", { class: "null" }, "null: there is none")];
  const text = textOf(bytes);
  let json = null;
  // numbers are shown as they are written: parsing would round those that JavaScript does not have
  if (text !== null && text.length <= 2_000_000 && /^\s*[[{]/.test(text)) { try { JSON.parse(text); json = indent(text); } catch { json = null; } }
  const forms = [];
  if (json !== null) forms.push(["JSON", () => showPieces(json)]);
  if (text !== null) forms.push(["Text", () => showPieces(text)]);
  forms.push(["Hex", () => { more.hidden = true; fill(shown, hexDump(bytes)); }]);
  const shown = h("pre", { class: "payload" });
  const more = h("button", { type: "button" });
  const buttons = forms.map(([label, make]) => h("button", { type: "button", class: "tab", onclick: () => choose(label, make) }, label));
  function choose(label, make) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === label));
    make();
  }
  function showPieces(all) {
    let at = 0;
    const add = () => {
      const piece = cut(all.slice(at), SHOWN_AT_ONCE);
      at += piece.length;
      shown.append(...visible(piece, true));
      more.textContent = `Show more: ${count(at)} of ${count(all.length)} characters are here`;
      more.hidden = at >= all.length;
    };
    more.onclick = add;
    fill(shown);
    add();
  }
  choose(...forms[0]);
  const save = () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([bytes])), download: `${whole.topic}-${whole.partition}-${whole.offset}.bin` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return [h("div", { class: "bar small" }, h("h3", {}, "Payload"), h("span", { class: "soft" }, hidden ? "with masked fields" : bytes.length ? size(bytes.length) : "empty"), buttons, h("span", { class: "grow" }),
    text === null ? null : h("button", { type: "button", class: "mini", onclick: () => copy(text, "the payload as text") }, "copy text"),
    h("button", { type: "button", class: "mini", onclick: () => copy(hexOf(bytes), "the payload as hex") }, "copy hex"),
    h("button", { type: "button", class: "mini", onclick: save }, "save")), shown, more];
}

export function indent(text) {
  // JSON with its own tokens, only the white space is ours
  const parts = [];
  let depth = 0;
  let before = "";
  const begin = () => parts.push("\n", "  ".repeat(Math.min(depth, INDENT_MAX)));
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs)) {
    const isOpen = before === "{" || before === "[";
    if (token === "}" || token === "]") {
      depth -= 1;
      if (!isOpen) begin();
    } else if (isOpen || before === ",") begin();
    parts.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return parts.join("");
}

export function detail(whole, context, changed) {
  const link = new URL(inBase(`/messages?topic=${encodeURIComponent(whole.topic)}&open=${whole.partition}:${whole.offset}`), location.href).href;
  const key = bytesOf(whole.key);
  const keyText = key === null ? null : textOf(key);
  const sum = whole.masked?.checksum ? [masked(), whole.checksum_holds ? " holds" : h("b", { class: "bad" }, " does not match the payload")] : whole.checksum === null ? "none" : whole.checksum_holds === null ? String(whole.checksum) : whole.checksum_holds ? `${whole.checksum}, holds` : h("b", { class: "bad" }, `${whole.checksum}, does not match the payload`);
  const facts = [["place", `partition ${whole.partition}, offset ${whole.offset}`], ["time", `${moment(whole.timestamp_us)} UTC`], ["state", whole.state.replaceAll("_", " ")],
    ["key", whole.masked?.key ? masked() : key === null ? h("span", { class: "null" }, "null") : key.length <= VALUE_MAX ? shortenedBytes(key, keyText) : [h("div", { class: "clip" }, shortenedBytes(key, keyText)), h("span", { class: "soft" }, `${size(key.length)} `), copyButtons(key, keyText, whole.key, "the key")]], ["id", whole.id ?? "none"], ["CRC-32", sum]];
  const rows = h("tbody");
  const all = h("button", { type: "button", onclick: addHeaders });
  function addHeaders() {
    const from = rows.children.length;
    rows.append(...whole.headers.slice(from, from + HEADERS_AT_ONCE).map(headerRow));
    all.textContent = `Show more headers: ${count(rows.children.length)} of ${count(whole.headers.length)} are here`;
    all.hidden = rows.children.length >= whole.headers.length;
  }
  addHeaders();
  return h("div", { class: "whole" },
    h("dl", { class: "facts" }, facts.map(([name, shown]) => [h("dt", {}, name), h("dd", {}, shown)])),
    h("div", { class: "bar small" }, h("h3", {}, "Headers"), h("span", { class: "soft" }, count(whole.headers.length)), h("span", { class: "grow" }),
      h("button", { type: "button", class: "mini", onclick: () => copy(JSON.stringify(whole.json), "the message as a line of JSON") }, "copy as JSON"),
      h("button", { type: "button", class: "mini", onclick: () => copy(link, "the address of this message") }, "copy link"),
      context.about.can_send ? h("a", { class: "button mini", href: `/send?topic=${encodeURIComponent(whole.topic)}&like=${whole.partition}:${whole.offset}` }, "send one like it") : null,
      context.about.can_mark ? h("button", { type: "button", class: "mini", onclick: () => markOne(whole, changed) }, "set state…") : null),
    whole.headers.length ? h("div", { class: "scroll" }, h("table", { class: "headers-table" }, h("thead", {}, h("tr", {}, [["header"], ["kind"], ["value"], ["size", "n"], ["copy", "n"]].map(([one, kind]) => h("th", { scope: "col", class: kind }, one)))), rows)) : h("p", { class: "soft" }, "none"), all,
    decodedView(whole.decoded), payloadView(whole));
}

async function askState(title, about, agree, state) {
  // which state, and why; null if the person left it
  const choice = h("select", { "aria-label": "State" }, STATES.filter((one) => one !== state).map((one) => h("option", { value: one }, one.replaceAll("_", " "))));
  if (state === null) choice.value = "poisoned";
  const reason = h("input", { type: "text", placeholder: "optional; goes with the dead letter", maxlength: 1000 });
  const note = h("p", { class: "soft" });
  const draw = () => { note.textContent = choice.value === "available" ? "Consumers see it." : "Consumers do not see it any more."; };
  choice.addEventListener("change", draw);
  draw();
  const agreed = await ask(title, [h("p", {}, about), h("label", { class: "wide" }, "state ", choice), note, h("label", { class: "wide" }, "reason", reason)], agree, { focus: choice });
  return agreed ? { state: choice.value, word: choice.value.replaceAll("_", " "), reason: reason.value || null } : null;
}

async function markOne(whole, changed) {
  const place = `${whole.partition}:${whole.offset}`;
  const wanted = await askState("Set the state of a message", ["Message ", h("b", {}, visible(`${whole.topic} ${place}`)), ` is ${whole.state.replaceAll("_", " ")}.`], "Set state", whole.state);
  if (!wanted) return;
  try {
    await post("/api/states", { topic: whole.topic, partition: whole.partition, offset: whole.offset, state: wanted.state, reason: wanted.reason });
    toast(`message ${place} is ${wanted.word}`);
    changed();
  } catch (error) {
    await ask("The state was not set", [errorBox(error)], "Close");
  }
}

export async function markAll(topic, where, partition, changed) {
  // of all that a filter selects: what a dry run counts is what is agreed to
  const wanted = await askState("Set the state of all that match", h("code", {}, visible(where)), "Count them first", null);
  if (!wanted) return;
  const { word, state, reason } = wanted;
  const change = { topic, where, partition, state, reason };
  try {
    const would = await post("/api/states", { ...change, dry_run: true });
    if (!would.changed && !would.matched) { toast("no message matches", "bad"); return; }
    const agreed = await ask(plural(would.matched, "message matches", "messages match"), [h("p", {}, `${count(would.changed)} of them would become `, h("b", {}, word), `; ${count(would.seen)} were looked at.`)], `Make them ${word}`, { danger: state !== "available" });
    if (!agreed) return;
    const did = await post("/api/states", change);
    toast(`${plural(did.changed, "message")} became ${word}`);
    changed();
  } catch (error) {
    await ask("The state was not set", [errorBox(error, where)], "Close");
  }
}
