"""An object store on loopback that speaks enough of S3 for a real client, and misbehaves when told to."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

LISTED = b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>'


class ObjectStore:
    """The objects, and what goes wrong: a list of (method, part of the key, fault), each used once or for ever."""

    def __init__(self):
        self.objects: dict[str, bytes] = {}
        self.faults: list[tuple[str, str, str]] = []
        self.always: list[tuple[str, str, str]] = []
        self.asked: list[tuple[str, str]] = []
        self.met: list[str] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def fault(self, method, key):
        """What goes wrong with this request."""
        with self.lock:
            self.asked.append((method, key))
            for where in (self.faults, self.always):
                for one in where:
                    if one[0] == method and one[1] in key:
                        if where is self.faults:
                            where.remove(one)
                        self.met.append(one[2])
                        return one[2]
        return ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self):
        """The key that is asked for and the fault it meets; a refused connection is closed at once."""
        key = urlsplit(self.path).path.lstrip("/")
        fault = self.store.fault(self.command, key)
        if fault == "refused":
            self.close_connection = True
            self.connection.close()
        elif fault == "busy":
            self.answer(503, b"<Error><Code>SlowDown</Code></Error>")
        elif fault == "forbidden":
            self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        return key, fault

    def do_GET(self):
        key, fault = self.begin()
        if fault in ("refused", "busy", "forbidden"):
            return
        if "list-type=2" in self.path:
            self.answer(200, LISTED)
        elif key not in self.store.objects:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self.give(self.store.objects[key], fault)

    def do_HEAD(self):
        self.do_GET()

    def give(self, body, fault):
        stamp = {"Last_Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": '"1"'}
        if fault == "wrong":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault not in ("cut", "hangs"):
            self.answer(200, body, **stamp)
            return
        self.send_response(200)
        for name, value in {"Content-Length": len(body), **stamp}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        if fault == "hangs":
            self.store.ended.wait(30)
        self.close_connection = True

    def do_PUT(self):
        key, fault = self.begin()
        if fault == "refused":
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if fault:
            self.close_connection = True
            return  # after "busy" the answer is out; "cut" hears the half of it and hangs up
        self.store.objects[key] = body
        self.answer(200, ETag='"1"')

    def do_DELETE(self):
        key, _ = self.begin()
        self.store.objects.pop(key, None)
        self.answer(204)

    def do_POST(self):
        """Several objects deleted in one request."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        for key in body.split("<Key>")[1:]:
            self.store.objects.pop(
                f"{self.path.strip('/').partition('?')[0].rstrip('/')}/{key.partition('<')[0]}", None
            )
        self.answer(200, b'<?xml version="1.0"?><DeleteResult></DeleteResult>')


@contextmanager
def object_store():
    """The address of a server that ends with the block, and its objects."""
    store = ObjectStore()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"store": store}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", store
    finally:
        store.ended.set()
        server.shutdown()
        server.server_close()
