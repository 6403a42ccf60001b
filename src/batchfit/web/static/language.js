// Remembers the language that a person chooses, for the next time they come without one in the address.

for (const link of document.querySelectorAll("[data-language]")) {
  link.addEventListener("click", () => {
    document.cookie = `lang=${link.dataset.language}; path=/; max-age=31536000; samesite=lax`;
  });
}
