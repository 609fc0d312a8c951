// Light, dark or as the system says. A classic script in the head, so that no page is ever painted in the wrong one.
(() => {
  const key = "kofn-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  };

  function apply() {
    const chosen = remembered();
    const dark = chosen ? chosen === "dark" : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  }

  function toggle() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    // The choice of the system is no choice of the user's: it is followed, not remembered.
    const asSystem = (next === "dark") === system.matches;
    try {
      asSystem ? localStorage.removeItem(key) : localStorage.setItem(key, next);
    } catch {
      /* a private window */
    }
    document.documentElement.dataset.theme = next;
    return next;
  }

  system.addEventListener("change", apply);
  window.kofnTheme = { toggle };
  apply();
})();
