"""A stand-in for a chat endpoint: a server in a thread that answers as a test wants it to."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def asked(request):
    """The prompt and both answers that a request shows, in its order."""
    text = request["messages"][1]["content"]
    found = re.fullmatch(
        r"<request (\w+)>\n(.*)\n</request \1>\n\n<answer-A \1>\n(.*)\n</answer-A \1>\n\n"
        r"<answer-B \1>\n(.*)\n</answer-B \1>",
        text,
        re.DOTALL,
    )
    return found.groups()[1:]


def completion(words):
    return {"choices": [{"message": {"role": "assistant", "content": words}}]}


def longer(request):
    """A judge who likes the longer answer, wherever it stands."""
    _, first, second = asked(request)
    if len(first) == len(second):
        return completion("TIE")
    return completion("A" if len(first) > len(second) else "B")


def drip(handler):
    """Begin a reply that takes longer than anybody waits."""
    handler.wfile.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    for _ in range(400):
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.05)


class StandIn:
    """``reply(request)`` gives what is sent: an object, bytes, or a status, headers and bytes; it
    may also write to the handler itself, and give None."""

    def __init__(self, reply=longer):
        self.reply, self.requests, self.headers = reply, [], []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stand_in.requests.append(json.loads(body))
                stand_in.headers.append({name.title(): text for name, text in self.headers.items()})
                found = stand_in.reply(stand_in.requests[-1])
                if callable(found):
                    found(self)
                    return
                status, headers, data = found if isinstance(found, tuple) else (200, {}, found)
                data = data if isinstance(data, bytes) else json.dumps(data).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": len(data), **headers}.items():
                        self.send_header(name, str(value))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:  # nobody reads on
                    pass

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
