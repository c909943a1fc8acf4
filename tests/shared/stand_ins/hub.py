"""A hub on this machine that takes models: what huggingface_hub's client asks for, and no more."""

import base64
import json
import re
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TOKEN = "hf_of_a_test"


class Hub:
    """What came: ``files`` by repository, branch and path; ``made`` repositories; every request."""

    def __init__(self):
        self.files, self.made, self.requests = {}, {}, []
        self.branches, self.stored = set(), {}
        self.refuses = None  # a status, for each commit


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self):
        return self.server.hub

    def do_GET(self):
        self.hub.requests.append((self.command, self.path, self.headers.get("Authorization")))
        self.say(404, {"error": "Repository not found"})

    do_HEAD = do_GET

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.hub.requests.append((self.command, self.path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.say(401, {"error": "Invalid credentials"})
        if self.path == "/api/repos/create":
            return self._create(json.loads(body))
        if self.path == "/api/validate-yaml":
            return self.say(200, {"errors": [], "warnings": []})
        if found := re.fullmatch(r"/api/models/(\w+/\w+)/branch/(\w+)", self.path):
            self.hub.branches.add(found.groups())
            return self.say(200, {})
        if found := re.fullmatch(r"/api/models/\w+/\w+/preupload/(\w+)", self.path):
            asked = json.loads(body)["files"]
            big = (".safetensors",)
            return self.say(200, {"files": [
                {"path": file["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if file["path"].endswith(big) else "regular"}
                for file in asked
            ]})  # fmt: skip
        if self.path.endswith(".git/info/lfs/objects/batch"):
            return self.say(200, {"transfer": "basic", "objects": [
                {**one, "actions": {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]}, "application/vnd.git-lfs+json")  # fmt: skip
        if found := re.fullmatch(r"/api/models/(\w+/\w+)/commit/(\w+)", self.path):
            return self._commit(*found.groups(), body)
        return self.say(404, {"error": f"not asked for: {self.path}"})

    def do_PUT(self):
        self.hub.requests.append((self.command, self.path, None))
        oid = self.path.rpartition("/")[2]
        if self.headers.get("Transfer-Encoding") == "chunked":
            self.hub.stored[oid] = self._chunks()
        else:
            self.hub.stored[oid] = self.rfile.read(int(self.headers["Content-Length"]))
        self.say(200, {})

    def _chunks(self):
        whole = b""
        while size := int(self.rfile.readline(), 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def _create(self, asked):
        name = (
            f"{asked['organization']}/{asked['name']}" if "organization" in asked else asked["name"]
        )
        if name in self.hub.made:
            return self.say(409, {"url": f"{self.server.url}/{name}", "error": "it is there"})
        self.hub.made[name] = asked
        return self.say(200, {"url": f"{self.server.url}/{name}"})

    def _commit(self, name, branch, body):
        if self.hub.refuses:
            return self.say(self.hub.refuses, {"error": "no room is left"})
        there = self.hub.files.setdefault((name, branch), {})
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                there[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                there[value["path"]] = self.hub.stored[value["oid"]]
        told = {"commitOid": "c" * 40, "commitUrl": f"{self.server.url}/{name}/commit/{'c' * 40}"}
        return self.say(200, told)

    def say(self, status, content, kind="application/json"):
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@contextmanager
def hub(monkeypatch):
    """It runs while the block does; huggingface_hub is pointed at it, with its token."""
    from huggingface_hub import constants

    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        server.hub, server.url = Hub(), f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        try:
            yield server.hub
        finally:
            server.shutdown()
