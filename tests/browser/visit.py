"""A page that a test looks at and acts on, as somebody in front of it would."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import numpy as np

PATIENCE = 30_000
"""Milliseconds until something that does not come is given up."""

UNIT = ((0.0, 1.0), (0.0, 1.0))

# Typed arrays pass as bytes: as lists, ten thousand numbers take seconds.
PASSING = """
const passing = (value) => {
  if (ArrayBuffer.isView(value)) {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    let text = "";
    for (let k = 0; k < bytes.length; k += 32768) {
      text += String.fromCharCode(...bytes.subarray(k, k + 32768));
    }
    return { typed: value.constructor.name, bytes: btoa(text) };
  }
  if (Array.isArray(value)) return value.map(passing);
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, v]) => [name, passing(v)]));
  }
  return value === undefined ? null : value;
};
"""
KINDS = {
    "Float32Array": "f4",
    "Float64Array": "f8",
    "Int8Array": "i1",
    "Uint8Array": "u1",
    "Uint8ClampedArray": "u1",
    "Int16Array": "i2",
    "Uint16Array": "u2",
    "Int32Array": "i4",
    "Uint32Array": "u4",
}


class Visit:
    """A page. `wrong` lists what went wrong in it so far."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.wrong: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"error in the page: {error}"))
        page.on("request", self._request)
        page.on("requestfailed", self._failed)

    def go(self, address: str | None = None) -> None:
        """Load an address; the page's own unless said."""
        self.page.goto(address or self.address)

    def settle(self) -> None:
        """Wait until a scene is open and its last question is answered."""
        self.page.wait_for_function(
            "() => { const { room } = window.ipot ?? {};"
            "return room?.scene && room.last && !room.asked.busy && !room.last.coarse; }"
        )
        said = self.page.locator(".error:visible").all_text_contents()
        assert not said, said

    def read(self, expression: str, given: Any = None) -> Any:
        """The value of an expression in which `room`, `state` (of the scene) and `given` are
        names; typed arrays become arrays."""
        found = self.page.evaluate(
            f"async (given) => {{ {PASSING} const room = window.ipot.room;"
            f"const state = room?.scene?.state; return passing(await ({expression})); }}",
            given,
        )
        return _unpacked(found)

    def last(self) -> dict[str, Any]:
        """The last question and its answer: {"inputs": {name: array}, "answer": {name: array}}."""
        found = self.read("room.last")
        return {
            part: {name: _shaped(value) for name, value in found[part].items() if value is not None}
            for part in ("inputs", "answer")
        }

    def figure(self, title: str) -> Any:
        """The canvas of a figure, by its title as it begins."""
        return (
            self.page.locator("figure", has=self.page.locator(f'figcaption:text("{title}")'))
            .locator("canvas")
            .first
        )

    def stroke(
        self, title: str, places: Iterable[tuple[float, float]], box: Any = None, steps: int = 4
    ) -> None:
        """Press at the first of some places of the data, drag to the others and let go."""
        canvas = self.figure(title)
        canvas.scroll_into_view_if_needed()
        area = canvas.bounding_box()
        (left, right), (bottom, top) = box or UNIT
        mouse, held = self.page.mouse, False
        for x, y in places:
            across = area["x"] + (x - left) / (right - left) * area["width"]
            down = area["y"] + (top - y) / (top - bottom) * area["height"]
            mouse.move(across, down, steps=steps if held else 1)
            if not held:
                mouse.down()
                held = True
        mouse.up()

    def press(self, label: str) -> None:
        """Press a button and wait until it has done its work."""
        # The element itself: what is written on it may change.
        button = self.page.get_by_role("button", name=label, exact=True).element_handle()
        button.click()
        self.page.wait_for_function("(b) => !b.disabled", arg=button)

    def choose(self, label: str) -> None:
        """One of a few, or something that is on or off, by its text."""
        self.page.locator(f'label:text-is("{label}")').click()

    def slide(self, label: str, index: float) -> None:
        """Drag a slider to a value, or to the index of what it stops at."""
        self.page.get_by_label(label, exact=True).evaluate(
            """(slider, value) => {
                slider.value = value;
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                slider.dispatchEvent(new Event("change", { bubbles: true }));
            }""",
            index,
        )

    def numbers(self) -> dict[str, str]:
        """What `room.tell` shows below the figures."""
        names = self.page.locator(".numbers dt").all_text_contents()
        return dict(zip(names, self.page.locator(".numbers dd").all_text_contents(), strict=True))

    def pixels(self, title: str) -> np.ndarray:
        """What is painted in a figure, (height, width, 4)."""
        canvas = self.figure(title)
        found = canvas.evaluate(
            f"(canvas) => {{ {PASSING} const {{ width, height }} = canvas;"
            # A canvas that is read more than once is warned of.
            "const copy = new OffscreenCanvas(width, height);"
            "const context = copy.getContext('2d');"
            "context.drawImage(canvas, 0, 0);"
            "const all = context.getImageData(0, 0, width, height);"
            "return { width, height, data: passing(all.data) }; }"
        )
        return _unpacked(found["data"]).reshape(found["height"], found["width"], 4)

    def forgive(self, part: str) -> None:
        """Something that went wrong on purpose: lines with this text are taken off `wrong`."""
        assert any(part in line for line in self.wrong), f"nothing went wrong with {part!r}"
        self.wrong = [line for line in self.wrong if part not in line]

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):  # what the policy forbids is told here, too
            self.wrong.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        self.requests.append(request.url)
        asked, own = urlsplit(request.url), urlsplit(self.address)
        inside = asked.scheme in ("data", "blob")
        if not inside and (asked.scheme, asked.netloc) != (own.scheme, own.netloc):
            self.wrong.append(f"request to another host: {request.url}")

    def _failed(self, request: Any) -> None:
        # Chromium says so of every body that a page reads piece by piece, when it has come to its
        # end. Where one did not, the page shows no solution and a test finds none. A question to a
        # model is given up by the page itself, for a newer one.
        given_up = request.failure == "net::ERR_ABORTED"
        if given_up and request.url.endswith(("/solve", "/predict")):
            return
        self.wrong.append(f"request failed: {request.url} ({request.failure})")


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        if "typed" in value:
            kind = KINDS[value["typed"]]
            return np.frombuffer(base64.b64decode(value["bytes"]), kind).copy()
        return {name: _unpacked(inner) for name, inner in value.items()}
    return [_unpacked(inner) for inner in value] if isinstance(value, list) else value


def _shaped(value: Any) -> Any:
    """An array of the page, {data, shape}, as one."""
    if isinstance(value, dict) and set(value) == {"data", "shape"}:
        return np.asarray(value["data"]).reshape(value["shape"])
    return value
