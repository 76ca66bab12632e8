// Requests to the console's server. An error has the server's sentence, and `at` where it has a place in a filter.
import { currentKey } from "./key.js";
import { inBase } from "./place.js";

export class ServerError extends Error {
  constructor(document) {
    super(document.error);
    this.at = document.at ?? null;
    this.unreachable = document.unreachable ?? false;
    this.needsKey = document.needs_key ?? false;
    this.needsLogin = document.needs_login ?? false;
    this.loginUrl = document.login_url ?? "/login";
    this.brokerNames = document.broker_names ?? null; // if the address names a broker that this console does not have
  }
}

const GONE = { error: "the console does not answer: its process has ended, or this machine cannot reach it", unreachable: true };

// what an open page asks for by itself does not keep a session alive
let isBackground = false;

export function setBackground(value) {
  isBackground = value;
}

export function query(values) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "" && one !== false) made.append(name, one);
    }
  }
  return made.toString();
}

async function request(path, options = {}) {
  const key = currentKey();
  const headers = { ...options.headers };
  if (key) headers["x-lading-console-key"] = key;
  if (isBackground) headers["x-lading-console-background"] = "1";
  try {
    return await fetch(inBase(path), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(GONE);
  }
}

function documentOf(answer) {
  // a proxy whose login has ended sends its own page, often as a response that succeeded
  if (answer.headers.get("content-type")?.startsWith("application/json")) return answer.json();
  throw new ServerError({ error: "the proxy in front of this console sent a page of its own: your login there may have ended", needs_login: true, login_url: "/" });
}

async function refuse(answer) {
  const text = await answer.text();
  let document;
  try { document = JSON.parse(text); } catch { document = { error: text.slice(0, 500) || `status ${answer.status}` }; }
  throw new ServerError(document);
}

export async function get(path, values = {}, signal = undefined) {
  const answer = await request(`${path}?${query(values)}`, { signal });
  return answer.ok ? documentOf(answer) : refuse(answer);
}

export async function post(path, document) {
  const answer = await request(path, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(document),
  });
  return answer.ok ? documentOf(answer) : refuse(answer);
}

export async function* stream(path, values, signal) {
  // yields the documents of an answer that comes one a line
  const answer = await request(`${path}?${query(values)}`, { signal });
  if (!answer.ok) await refuse(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    let part;
    try { part = await reader.read(); } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(GONE);
    }
    if (part.done) return;
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const document = JSON.parse(line);
      if (document.error) throw new ServerError(document);
      yield document;
    }
  }
}
