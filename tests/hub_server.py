"""A stand-in for a hub, on loopback and in memory: enough of its protocol to send a folder and to fetch it."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

SHA = "a" * 40


class Handler(BaseHTTPRequestHandler):
    """Repositories by kind and name; the server has them in `repos`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def _answer(self, value, code=200, head=False, **headers):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, repos = unquote(self.path.partition("?")[0]), self.server.repos
        if path == "/api/repos/create":
            asked = json.loads(body)
            kind = "datasets" if asked.get("type") == "dataset" else "models"
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if f"{kind}/{name}" not in repos and "private" in (
                asked.get("visibility"),
                asked.get("private") and "private",
            ):
                self.server.private.add(f"{kind}/{name}")
            repos.setdefault(f"{kind}/{name}", {})
            place = f"datasets/{name}" if kind == "datasets" else name
            return self._answer({"url": f"http://{self.headers['Host']}/{place}", "name": name})
        if path == "/api/validate-yaml":
            return self._answer({"errors": [], "warnings": []})
        repo = "/".join(path.split("/")[2:5])
        if "/preupload/" in path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                for f in json.loads(body)["files"]
            ]
            return self._answer({"files": files})
        if "/commit/" in path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    repos[repo][entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                if entry["key"] == "deletedFile":
                    del repos[repo][entry["value"]["path"]]
            where = f"http://{self.headers['Host']}/{repo.removeprefix('models/')}/commit/{SHA}"
            return self._answer({"commitUrl": where, "commitOid": SHA})
        return self._answer({"error": "not found"}, 404)

    def _get(self, head=False):
        path, repos = unquote(self.path.partition("?")[0]), self.server.repos
        if path.startswith("/api/"):
            repo = "/".join(path.split("/")[2:5])
            if repo not in repos:
                return self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            names = sorted(repos[repo])
            if "/tree/" in path:
                return self._answer(
                    [{"type": "file", "path": n, "size": len(repos[repo][n]), "oid": SHA} for n in names]
                )
            told = {"id": repo, "sha": SHA, "private": repo in self.server.private}
            return self._answer({**told, "siblings": [{"rfilename": n} for n in names]})
        repo, _, rest = path.strip("/").partition("/resolve/")
        repo = repo if repo.startswith("datasets/") else f"models/{repo}"
        data = repos.get(repo, {}).get(rest.partition("/")[2])
        if data is None:
            return self._answer({"error": "not found"}, 404, X_Error_Code="EntryNotFound")
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        return self._answer(data, head=head, ETag=etag, X_Repo_Commit=SHA, Accept_Ranges="bytes")

    def do_GET(self):
        self._get()

    def do_HEAD(self):
        self._get(head=True)


@contextmanager
def hub():
    """The address of a hub that is there while the block runs, and its repositories."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.repos, server.private = {}, set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.repos
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
