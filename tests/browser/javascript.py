"""Calls of functions in the page's modules that need no page: by node, or else in Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

WEB = Path(__file__).parents[2] / "web"
CHROMIUM = Path("/usr/bin/chromium")

# Typed arrays become lists, and what JSON has no word for is refused rather than made null.
_ANSWER = """
const said = JSON.stringify(answer === undefined ? null : answer, (key, value) => {
  if (ArrayBuffer.isView(value)) return Array.from(value);
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${key} is ${value}`);
  return value;
});
"""


def call(module: str, expression: str, **given: Any) -> Any:
    """The value of an expression in which `m` is a module below `web/` and `given` are names.

    `call("problems/airfoil.js", "m.mesh(moved)", moved=[0] * 8)`. Numbers pass as JSON, which keeps
    float64; a promise is awaited.
    """
    if not (WEB / module).is_file():
        pytest.skip(f"{WEB / module} is not there: the sources of the page belong to a checkout")
    names = ", ".join(given)
    if shutil.which("node"):
        return _by_node(module, expression, names, given)
    return _by_chromium(module, expression, names, given)


def _by_node(module: str, expression: str, names: str, given: dict[str, Any]) -> Any:
    script = f"""
    import {{ readFileSync }} from "node:fs";
    import * as m from {json.dumps((WEB / module).as_uri())};
    const {{ {names} }} = JSON.parse(readFileSync(0, "utf8"));
    const answer = await ({expression});
    {_ANSWER}
    process.stdout.write(said);
    """
    found = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def _by_chromium(module: str, expression: str, names: str, given: dict[str, Any]) -> Any:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="neither node nor playwright is installed"
    )
    if not CHROMIUM.is_file():
        pytest.skip(f"neither node nor {CHROMIUM} is installed")
    host = "http://page.invalid/"

    def serve(route: Any) -> None:
        path = (WEB / route.request.url.removeprefix(host)).resolve()
        if path.is_file() and path.is_relative_to(WEB):
            route.fulfill(body=path.read_text(), content_type="text/javascript")
        else:
            route.fulfill(body="", content_type="text/html")

    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page()
        page.route("**/*", serve)
        page.goto(host)
        found = page.evaluate(
            f"""async (given) => {{
                const m = await import({json.dumps(host + module)});
                const {{ {names} }} = given;
                const answer = await ({expression});
                {_ANSWER}
                return said;
            }}""",
            given,
        )
        browser.close()
    return json.loads(found)
