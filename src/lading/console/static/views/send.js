// The send form: typed headers in order, the same key more than once, nulls; what will be sent is shown before it is.
import { get, post } from "../api.js";
import { ask, count, errorBox, fill, h, plural, size, table, toast, visible, visibleOrEmpty } from "../dom.js";
import { bytesOf, hexOf, textOf } from "./message.js";
import { tabs } from "./topic.js";

export const title = (params) => `Send to ${params.get("topic") ?? ""}`;
const KINDS = ["string", "raw", "bool", "int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64", "uint128", "float32", "float64"];
const ROWS_MAX = 200; // headers of a message that one like it is sent of: the others go as they were
const TYPED_MAX = 4096; // bytes of a key, or of a header's value, in a field
const TYPED_PAYLOAD_MAX = 200_000; // bytes

function base64Of(bytes) {
  let text = "";
  for (const one of bytes) text += String.fromCharCode(one);
  return btoa(text);
}

function fromHex(text, what) {
  const digits = text.trim().replace(/^0x/i, "").replace(/\s+/g, "");
  if (digits.length % 2 || /[^0-9a-f]/i.test(digits)) throw new Error(`${what}: ${text.slice(0, 40)} is not hex; write pairs of digits such as 00ff`);
  return { base64: base64Of(Uint8Array.from(digits.match(/../g) ?? [], (one) => parseInt(one, 16))) };
}

function canBeTyped(header, bytes, json) {
  // whether fields give the same key, kind and bytes back: they have one line, and words for known kinds
  if (!KINDS.includes(header.kind) || /[\r\n]/.test(header.key) || header.key.length > TYPED_MAX) return false;
  if (bytes === null || (header.kind === "raw" && bytes.length <= TYPED_MAX && textOf(bytes) === null)) return true;
  // the server writes base64 where text would not come back as these bytes
  return bytes.length <= TYPED_MAX && typeof json !== "object" && (header.text !== null || !/[\r\n]/.test(textOf(bytes)));
}

export async function render(main, context) {
  const topic = context.params.get("topic") ?? "";
  main.append(tabs(topic, "/send", context));
  if (!context.about.can_send) {
    main.append(h("p", { class: "empty" }, context.about.is_read_only ? "This console was started with --read-only: it sends nothing." : "What is shown here is a directory; there is no server to send to."));
    return;
  }
  const rows = h("div");
  const rest = h("div"); // headers that have no rows
  const addKept = (place, about, headers) => {
    // what no field can hold goes as it was, in bytes
    const row = h("div", { class: "header-row kept" }, about, h("button", { type: "button", class: "mini", "aria-label": "Remove this header", onclick: () => row.remove() }, "×"));
    row.read = () => headers.map((one) => ({ key: one.key, kind: KINDS.includes(one.kind) ? one.kind : one.kind_number, value: one.value === null ? null : { base64: one.value } }));
    place.append(row);
  };
  const addRow = (header = null) => {
    const begun = header ?? { key: "", kind: "string", text: "", isNull: false };
    const key = h("input", { type: "text", placeholder: "header", "aria-label": "Header", value: begun.key, spellcheck: "false" });
    const kind = h("select", { "aria-label": "Kind" }, KINDS.map((one) => h("option", { value: one }, one)));
    kind.value = begun.kind;
    const value = h("input", { type: "text", "aria-label": "Value", value: begun.text, spellcheck: "false" });
    const isNull = h("input", { type: "checkbox", checked: begun.isNull, onchange: draw });
    const row = h("div", { class: "header-row" }, key, kind, value, h("label", { class: "check" }, isNull, "null"),
      h("button", { type: "button", class: "mini", "aria-label": "Remove this header", onclick: () => row.remove() }, "×"));
    kind.addEventListener("change", draw);
    function draw() {
      value.disabled = isNull.checked;
      value.placeholder = { raw: "text, or 0x00ff", bool: "true or false", string: "text, may be empty" }[kind.value] ?? "number";
    }
    row.read = () => {
      // a row that nobody filled in is no header, unless a message has one without name and value
      if (!key.value && !value.value && !isNull.checked && header?.key !== "") return [];
      const made = { key: key.value, kind: kind.value };
      if (isNull.checked) return [{ ...made, value: null }];
      if (kind.value === "raw" && value.value.startsWith("0x")) return [{ ...made, value: fromHex(value.value, `header ${key.value}`) }];
      // numbers stay text on their way: JavaScript has no 64 bits
      return [{ ...made, value: value.value }];
    };
    draw();
    rows.append(row);
    return key;
  };
  const key = h("input", { type: "text", spellcheck: "false", "aria-label": "Key" });
  const hasKey = h("input", { type: "checkbox", onchange: () => { key.disabled = !hasKey.checked || Boolean(key.exact); } });
  key.disabled = true;
  const partition = h("input", { type: "number", min: 0, placeholder: "by key", "aria-label": "Partition" });
  const payload = h("textarea", { spellcheck: "false", "aria-label": "Payload" });
  const form = h("select", { "aria-label": "Form of the payload", onchange: () => { payload.disabled = form.value === "null" || form.value === "kept"; } },
    [["text", "text"], ["hex", "hex"], ["null", "null: none"]].map(([value, label]) => h("option", { value }, label)));
  let kept = null; // the payload of the message that this one is like, in base64
  const problem = h("div");
  const note = h("p", { class: "soft" });
  main.append(note, h("form", { class: "sendform", onsubmit: (event) => { event.preventDefault(); send(); } },
    h("fieldset", {}, h("legend", {}, "Headers"), rows, rest, h("button", { type: "button", onclick: () => addRow().focus() }, "Add a header"),
      h("span", { class: "soft" }, " in this order; the same key may come more than once")),
    h("fieldset", {}, h("legend", {}, "Key and partition"), h("div", { class: "row" }, h("label", { class: "check" }, hasKey, "with a key"), key, h("label", { class: "check" }, "partition", partition))),
    h("fieldset", {}, h("legend", {}, "Payload"), h("p", {}, form), payload),
    problem, h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Send…"))));

  function read() {
    const message = { headers: [...rows.children, ...rest.children].flatMap((one) => one.read()), key: hasKey.checked ? key.exact ?? key.value : null };
    message.payload = form.value === "null" ? null : form.value === "kept" ? { base64: kept } : form.value === "hex" ? fromHex(payload.value, "payload") : payload.value;
    return { topic, partition: partition.value === "" ? null : Number(partition.value), message };
  }

  async function send() {
    fill(problem);
    try {
      const document = read();
      const shown = await post("/api/send", { ...document, dry_run: true });
      const { payload_bytes: bytes, creates_topic: isNew } = shown;
      const isSure = await ask("Send this message?", [
        h("p", {}, "To ", h("b", {}, visible(topic)), isNew ? ", which does not exist yet and is created with one partition" : "", document.partition === null ? "" : `, partition ${document.partition}`, bytes === null ? ", without a payload" : `, payload of ${plural(bytes, "byte")}`, document.message.key === null ? ", without a key." : ", with a key."),
        shown.headers.length ? table(["header", "kind", "bytes"], shown.headers.slice(0, ROWS_MAX).map(([name, kind, hex], at) => [visibleOrEmpty(name), KINDS.includes(document.message.headers[at].kind) ? document.message.headers[at].kind : `kind ${kind}`, hex === null ? h("span", { class: "null" }, "null") : hex === "" ? visibleOrEmpty(hex) : h("code", {}, hex.length > 80 ? `${hex.slice(0, 80)}…` : hex)])) : h("p", {}, "No headers."),
        shown.headers.length > ROWS_MAX ? h("p", { class: "soft" }, `and ${plural(shown.headers.length - ROWS_MAX, "more header")}`) : null], "Send");
      if (!isSure) return;
      await post("/api/send", document);
      toast(`sent to ${topic}`);
      fill(note, "Sent. ", h("a", { href: `/messages?topic=${encodeURIComponent(topic)}` }, "See the newest messages"));
    } catch (error) {
      fill(problem, errorBox(error));
    }
  }

  const like = context.params.get("like");
  if (!like) { addRow(); return; }
  const [number, offset] = like.split(":");
  const whole = await get("/api/message", { topic, partition: number, offset }, context.signal);
  const isMasked = whole.headers.some((one) => one.masked) || whole.masked?.key || Boolean(whole.masked?.payload);
  if (isMasked) {
    // what is not known cannot be sent: the place of a value is not filled with a word
    whole.json.headers = whole.json.headers.filter((_, at) => !whole.headers[at].masked);
    whole.headers = whole.headers.filter((one) => !one.masked);
    if (whole.masked?.payload) whole.payload = "";
  }
  for (const [at, one] of whole.headers.slice(0, ROWS_MAX).entries()) {
    const bytes = bytesOf(one.value);
    if (!canBeTyped(one, bytes, whole.json.headers[at].value)) {
      addKept(rows, [h("span", {}, visibleOrEmpty(one.key.slice(0, 200))), h("span", { class: "kind" }, one.kind), h("span", { class: "soft" }, `as it was, ${size(bytes?.length ?? 0)}`), h("span")], [one]);
      continue;
    }
    const text = bytes === null ? "" : one.text ?? textOf(bytes);
    const isText = text !== null && !(one.kind === "raw" && text.startsWith("0x"));
    addRow({ key: one.key, kind: one.kind, text: isText ? text : `0x${hexOf(bytes)}`, isNull: bytes === null });
  }
  const others = whole.headers.slice(ROWS_MAX);
  if (others.length) addKept(rest, [h("span", {}, plural(others.length, "more header")), h("span"), h("span", { class: "soft" }, "as they were, behind the others"), h("span")], others);
  const keyBytes = bytesOf(whole.key);
  if (keyBytes) {
    hasKey.checked = true;
    key.disabled = false;
    const text = textOf(keyBytes);
    key.value = (text ?? `0x${hexOf(keyBytes.subarray(0, TYPED_MAX))}`).slice(0, TYPED_MAX);
    if (key.value !== text) { key.exact = { base64: whole.key }; key.disabled = true; }
  }
  const data = bytesOf(whole.payload);
  const text = data === null ? null : textOf(data);
  if (data !== null && data.length > TYPED_PAYLOAD_MAX) {
    kept = whole.payload;
    form.append(h("option", { value: "kept" }, `as it was, ${size(data.length)}`));
    form.value = "kept";
  } else {
    payload.value = text ?? "";
    // a field has one kind of line end: a text with others stands as its bytes
    form.value = data === null ? "null" : payload.value === text ? "text" : "hex";
    if (form.value === "hex") payload.value = hexOf(data);
  }
  payload.disabled = data === null || kept !== null;
  fill(note, `Like message ${like}, which has ${plural(whole.headers.length, "header")}.`, isMasked ? " Masked values are left out; a payload with masked fields is empty." : "");
}
