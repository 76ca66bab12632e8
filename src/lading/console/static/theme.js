// Before the first paint: the theme that was chosen in this browser.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("lading-theme"); } catch { /* a browser that stores nothing */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
