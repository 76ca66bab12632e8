// The key of a console that logs in with a secret. It stands in the fragment of the address that the console printed,
// which no request contains, and is kept in the storage of this origin: of this port, unlike a cookie.
const NAME = "lading-console-key";
// a browser that stores nothing keeps it as long as the page
let key = null;
// a tab that was opened from another one asks the tabs of this origin
const tabs = new BroadcastChannel(NAME);
const arrivals = [];

function keep(given) {
  key = given;
  try { sessionStorage.setItem(NAME, given); } catch { /* see above */ }
  for (const notify of arrivals.splice(0)) notify();
}

function takeFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (!given) return;
  // it stays neither in the address nor in the history
  history.replaceState(null, "", location.pathname + location.search);
  keep(given);
}

export function currentKey() {
  return key;
}

export function nextKey() {
  // resolves when the address or another tab has given a key
  return new Promise((resolve) => {
    arrivals.push(resolve);
    tabs.postMessage("ask");
  });
}

tabs.addEventListener("message", (event) => {
  if (event.data === "ask") { if (key) tabs.postMessage({ key }); }
  else if (event.data.key && event.data.key !== key && arrivals.length) keep(event.data.key);
});
window.addEventListener("hashchange", takeFromAddress);
try { key = sessionStorage.getItem(NAME); } catch { /* see above */ }
takeFromAddress();
