"""The calculator's page as a person uses it."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import FrameLocator, Locator, Page, expect

PATH = "gradient-accumulation"


@dataclass
class Calculator:
    """A calculator in a page, or within a frame of one."""

    within: Page | FrameLocator

    @classmethod
    def opened(cls, page: Page, query: str = "", lang: str = "en") -> Calculator:
        """The calculator's page, its script running."""
        page.goto(f"/{lang}/{PATH}" + (f"?{query}" if query else ""))
        page.wait_for_selector("html[data-ready]")
        return cls(page)

    def field(self, name: str) -> Locator:
        """The text field of an input."""
        return self.within.locator(f"#{name}")

    def type(self, name: str, text: str) -> None:
        """Replaces what stands in a field, key by key."""
        self.field(name).select_text()
        self.field(name).press("Delete")
        self.field(name).press_sequentially(text)

    def result(self, name: str) -> str:
        """A result's number and unit."""
        value = self.within.locator(f'[data-result="{name}"] .value')
        return value.inner_text().replace("\xa0", " ").partition(" = ")[0].strip()

    def reading(self, name: str) -> str:
        """The sentence that explains a result."""
        return self.within.locator(f'[data-result="{name}"] [data-reading]').inner_text().replace("\xa0", " ")

    def error(self, name: str) -> Locator:
        """The message beside a field."""
        return self.within.locator(f"#{name}-error")

    @property
    def state(self) -> str | None:
        """good, stale or empty."""
        return self.within.locator("[data-instrument]").get_attribute("data-state")

    def expect_results(self, effective: str, memory: str) -> None:
        """Both results, as they stand."""
        expect(self.within.locator('[data-result="effective_batch_size"] [data-number]')).to_have_text(
            effective.split()[0]
        )
        assert self.result("effective_batch_size") == effective
        assert self.result("activation_memory_bytes") == memory
