"""An empty machine, pictures, and a server that cuts connections."""

import http.server
import io
import tarfile
import threading
import zipfile
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from fourviews.data.sources import Archive


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """FOURVIEWS_DATA and the cache, both empty, and no network."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("FOURVIEWS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FOURVIEWS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FOURVIEWS_OFFLINE", "1")
    return tmp_path


@pytest.fixture
def jpeg():
    """Content of a picture file of one colour."""
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow")

    def make(colour, side=64, mode="RGB", kind="JPEG"):
        shape = (side, side, 3) if mode == "RGB" else (side, side)
        picture = pillow.fromarray(np.full(shape, colour, dtype=np.uint8), mode)
        raw = io.BytesIO()
        picture.save(raw, kind)
        return raw.getvalue()

    return make


def pack(path, files):
    """A zip or tar archive of files {name: content}."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture(name="pack")
def pack_fixture():
    return pack


@pytest.fixture
def publish(monkeypatch):
    """Make an archive the published one of a data set, on a server that cuts the first answers.

    ``publish(data_set, content, cuts)`` returns the data set with another address, checksum and
    size, and the list of ranges that were asked for.
    """
    monkeypatch.delenv("FOURVIEWS_OFFLINE", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    servers = []

    def start(data, content, cuts=()):
        cuts, ranges = list(cuts), []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                ranges.append(self.headers.get("Range"))
                begin = 0
                if ranges[-1]:
                    begin = int(ranges[-1].removeprefix("bytes=").removesuffix("-"))
                    self.send_response(206)
                    self.send_header(
                        "Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}"
                    )
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(content) - begin))
                self.end_headers()
                self.wfile.write(content[begin:][: cuts.pop(0) if cuts else None])
                self.close_connection = True

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        archive = replace(
            data.archive,
            urls=(f"http://127.0.0.1:{server.server_port}/{data.archive.file}",),
            checksum="sha256:" + sha256(content).hexdigest(),
            n_bytes=len(content),
        )
        assert isinstance(archive, Archive)
        return replace(data, archive=archive), ranges

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
