"""Downloads from a server on this machine that cuts connections, lies and fails."""

import hashlib
import http.server
import multiprocessing
import threading

import pytest

from fourviews.data.files.checksums import ChecksumError
from fourviews.data.files.download import DownloadError, download

CONTENT = bytes(range(256)) * 4000  # 1 MB, more than one piece
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT; what it does wrong is set by the test."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cuts: list[
            int
        ] = []  # how many bytes the next answers send before the connection breaks
        self.ranges = True
        self.statuses: list[int] = []  # the next answers' status instead of 200
        self.requests: list[str | None] = []  # the Range header of each request
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        with server.lock:
            server.requests.append(self.headers.get("Range"))
            status = server.statuses.pop(0) if server.statuses else 200
            cut = server.cuts.pop(0) if server.cuts else None
        if status != 200:
            self.send_error(status)
            return
        start = 0
        if server.ranges and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            last = len(server.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(server.content)}")
        else:
            self.send_response(200)
        body = server.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("FOURVIEWS_OFFLINE", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(server, target, urls=None, **options):
    options = {"checksum": CHECKSUM, "n_bytes": len(CONTENT), "pause": 0.01, **options}
    return download(urls or [server.url], target, **options)


def visible(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_whole_file(server, tmp_path):
    target = get(server, tmp_path / "file.bin")
    assert target.read_bytes() == CONTENT and visible(tmp_path) == ["file.bin"]
    get(server, target)
    assert len(server.requests) == 1  # the second call found it


def test_cut_connection_is_resumed_where_it_broke(server, tmp_path):
    server.cuts = [300_000, 0, 200_000]
    target = get(server, tmp_path / "file.bin")
    assert target.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]


def test_next_call_resumes_an_interrupted_one(server, tmp_path):
    server.cuts = [300_000, 0, 0]
    with pytest.raises(DownloadError, match="ended after 300000 of"):
        get(server, tmp_path / "file.bin", attempts=2)
    assert visible(tmp_path) == ["file.bin.part"]
    server.requests.clear()
    assert get(server, tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.requests == ["bytes=300000-"]


def test_server_without_ranges_starts_again(server, tmp_path):
    server.ranges, server.cuts = False, [300_000]
    assert get(server, tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-"]


def test_part_of_other_content_is_not_trusted(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    assert get(server, tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.requests == ["bytes=1000-", None]


@pytest.mark.parametrize("content", [b"y" * len(CONTENT), CONTENT + b"more", CONTENT + CONTENT])
def test_wrong_content_leaves_nothing_behind(server, tmp_path, content):
    server.content = content
    with pytest.raises(ChecksumError, match="file.bin"):
        get(server, tmp_path / "file.bin")
    assert visible(tmp_path) == []


def test_damaged_file_is_replaced(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"damaged")
    assert get(server, tmp_path / "file.bin").read_bytes() == CONTENT


def test_busy_server_is_asked_again_and_missing_file_is_not(server, tmp_path):
    server.statuses = [503, 503]
    assert get(server, tmp_path / "a.bin").read_bytes() == CONTENT
    server.requests.clear()
    server.statuses = [404]
    with pytest.raises(DownloadError, match="404"):
        get(server, tmp_path / "b.bin")
    assert len(server.requests) == 1


def test_second_address_is_used_when_the_first_fails(server, tmp_path):
    closed = Server()
    closed.server_close()
    target = get(server, tmp_path / "file.bin", urls=[closed.url, server.url], attempts=1)
    assert target.read_bytes() == CONTENT


def test_offline_asks_nobody(server, tmp_path, monkeypatch):
    monkeypatch.setenv("FOURVIEWS_OFFLINE", "1")
    with pytest.raises(DownloadError, match="FOURVIEWS_OFFLINE"):
        get(server, tmp_path / "file.bin")
    assert server.requests == []


def test_other_schemes_are_refused(tmp_path):
    (tmp_path / "secret").write_bytes(CONTENT)
    with pytest.raises(ValueError, match="http"):
        get(None, tmp_path / "file.bin", urls=[(tmp_path / "secret").as_uri()])


def _fetch(url, target):
    download([url], target, checksum=CHECKSUM, n_bytes=len(CONTENT), pause=0.01)


def test_two_processes_download_once(server, tmp_path):
    context = multiprocessing.get_context("spawn")
    target = tmp_path / "file.bin"
    workers = [context.Process(target=_fetch, args=(server.url, target)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert target.read_bytes() == CONTENT and len(server.requests) == 1
