"""A headless Chromium driven over its DevTools pipe: pages are opened, keys pressed, pictures taken."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)


class Browser:
    """One page of one browser with a profile of its own. Use as a context manager."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        """Start it; nothing is loaded yet."""
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [CHROMIUM, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]

        def place() -> None:  # Chromium reads commands from descriptor 3 and answers on 4
            low = [os.dup(fd) for fd in (theirs_in, theirs_out)]
            low = [os.dup(fd) if fd < 5 else fd for fd in low]
            low = [os.dup(fd) if fd < 5 else fd for fd in low]
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        self._process = subprocess.Popen(
            words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=place, close_fds=False
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session, self.events = b"", 0, "", []
        page = next(t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])

    def __call__(self, method: str, **values: Any) -> dict[str, Any]:
        """The result of one DevTools command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            got = os.read(self._in, 1 << 20)
            assert got, "the browser has ended"
            self._buffer += got
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is there."""
        self("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, script: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        found = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, limit_s: float = 60.0) -> Any:
        """What an expression gives once that is true."""
        end_s = time.monotonic() + limit_s
        while not (value := self.value(script)):
            assert time.monotonic() < end_s, f"never: {script}; the page says {self.value('document.body.innerText')!r}"
            time.sleep(0.05)
        return value

    def press(self, key: str, code: int, ctrl: bool = False, text: str = "") -> None:
        """One key, down and up."""
        common: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 * ctrl}
        self("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        found = self("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def problems(self) -> list[str]:
        """Errors that the page's script threw or the browser logged."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e.get("method") in kinds]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
