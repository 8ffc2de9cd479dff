"""A verifier on the hub is fetched without what could run, and checked as a folder is."""

import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from bombs import Bomb
from conftest import ROOT

from proofreel.models.directory.format import fingerprint

KEPT = ROOT / "tests" / "fixtures"


class Hub(BaseHTTPRequestHandler):
    """The few answers of a hub that a download needs; `folder` holds the repository's files."""

    folder: Path
    commit = "c" * 40
    asked: list[str] = []  # noqa: RUF012 (one hub per test)

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, body: bool) -> None:
        self.asked.append(self.path)
        file = self.folder / self.path.partition(f"/resolve/{self.commit}/")[2]
        if self.path.startswith("/api/"):
            files = {p.relative_to(self.folder).as_posix(): p for p in self.folder.rglob("*") if p.is_file()}
            listed = [{"type": "file", "path": n, "size": p.stat().st_size, "oid": "0"} for n, p in files.items()]
            about = {"id": "a/v", "sha": self.commit, "siblings": [{"rfilename": name} for name in files]}
            data = json.dumps(listed if "/tree/" in self.path else about).encode()
        else:
            data = file.read_bytes()
        self.send_response(200)
        self.send_header("ETag", f'"{abs(hash(data))}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_) -> None:
        pass


def test_a_hub_id_is_fetched_without_what_could_run_and_checked_like_a_folder(tmp_path):
    shutil.copytree(KEPT / "tiny_base", tmp_path / "tiny_base")
    copy = shutil.copytree(KEPT / "verifier_v1_1", tmp_path / "verifier")
    for name in ("evil.bin", "evil.pkl", "modeling_evil.py", ".gitattributes"):
        (copy / name).write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    handler = type("ThisHub", (Hub,), {"folder": copy, "asked": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code = (
        "import sys, json; from proofreel import Verifier\n"
        "from proofreel.models.verifier.self_test import selftest\n"
        "from proofreel.models.directory.format import find_verifier\n"
        "v = Verifier.from_pretrained('a/v', device='cpu', base=sys.argv[1], revision='v1')\n"
        "assert selftest(find_verifier('a/v', 'v1'), v, 'float32').passed\n"
        "print(v.fingerprint)"
    )
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(copy.parent / "tiny_base")], env=environment, capture_output=True, text=True
    )
    server.shutdown()
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == fingerprint(KEPT / "verifier_v1_1")
    assert any("/revision/v1" in path for path in handler.asked)
    assert not any("evil" in path or "gitattributes" in path for path in handler.asked)
    assert not (tmp_path / "mark").exists()
