// theme.js - light or dark before anything is drawn; a plain script because modules run too late for that.
"use strict";
(() => {
  let theme = "";
  try {
    theme = localStorage.getItem("bitnet.theme") || "";
  } catch { /* a browser that keeps nothing follows the system */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
