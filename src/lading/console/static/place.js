// Where the pages of one broker are: a console of several has each below /at/NAME, one of a single broker has none.
export const base = /^\/at\/[^/]+/.exec(location.pathname)?.[0] ?? "";

export const inBase = (path) => (path.startsWith("/") ? base + path : path);

export const pathHere = () => location.pathname.slice(base.length) || "/";
