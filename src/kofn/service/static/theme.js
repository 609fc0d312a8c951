// Light or dark theme; the default follows the system. A classic script in the head, so that it runs before the first paint.
(() => {
  const key = "kofn-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  };

  function apply() {
    const chosen = stored();
    const dark = chosen ? chosen === "dark" : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  }

  function toggle() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    // A choice equal to the system's is not stored, so that the page follows the system again.
    const asSystem = (next === "dark") === system.matches;
    try {
      asSystem ? localStorage.removeItem(key) : localStorage.setItem(key, next);
    } catch {
      /* storage is not available in a private window */
    }
    document.documentElement.dataset.theme = next;
  }

  system.addEventListener("change", apply);
  window.kofnTheme = { toggle };
  apply();
})();
