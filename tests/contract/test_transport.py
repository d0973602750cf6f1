"""What every transport promises, asked of this machine without SSH and of real hosts over SSH."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.errors import RemoteFailed, TimedOut
from deploy.transport import Transport, connect
from deploy.transport.http import request
from tests.fleet import TestHost
from tests.project import PATIENCE, free_port, until

BYTES = bytes(range(256)) * 4


@pytest.fixture(scope="module", params=["local", "ssh"])
def there(request) -> Iterator[Transport]:
    local = TestHost("here", "localhost", "", transport="local")
    transport = connect(local if request.param == "local" else request.getfixturevalue("sshd"))
    yield transport
    transport.close()


def alive(words: str) -> list[int]:
    """Live processes (a zombie has no words) whose words contain `words`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(
    ("argv", "status", "stdout", "stderr"),
    [
        (["true"], 0, b"", b""),
        (["false"], 1, b"", b""),
        (["sh", "-c", "exit 42"], 42, b"", b""),
        (["printf", "%s|", "a b", "$HOME", "'", '"', ";x", "", "-n", "*", "\\", "é", "\n"], 0,
         "a b|$HOME|'|\"|;x||-n|*|\\|é|\n|".encode(), b""),
        (["sh", "-c", "echo out; echo err >&2"], 0, b"out\n", b"err\n"),
        (["sh", "-c", "exit 124"], 124, b"", b""),
        (["sh", "-c", "kill -s KILL $$"], 137, b"", None),
        (["no-such-program"], 127, b"", None),
        (["/etc/passwd"], 126, b"", None),
    ],
)  # fmt: skip
def test_a_program_s_words_streams_and_status_arrive(there, argv, status, stdout, stderr):
    result = there.run(argv)
    assert (result.status, result.stdout) == (status, stdout)
    assert stderr is None or result.stderr == stderr


@pytest.mark.parametrize("size", [0, 1, 65536, 5_000_000])
def test_stdin_comes_back_from_cat_unchanged(there, size):
    data = os.urandom(size)
    assert there.run(["cat"], stdin=data, limit=8 << 20).stdout == data


def test_a_program_may_end_without_reading_its_input(there):
    assert there.run(["true"], stdin=b"x" * 5_000_000).status == 0


def test_input_that_nobody_reads_ends_with_its_program_though_a_child_holds_it_open(there):
    left = "exec 3<&0; sleep 60 <&3 >/dev/null 2>&1 3<&- & exit 7"
    began = time.monotonic()
    assert there.run(["sh", "-c", left], stdin=b"x" * 5_000_000).status == 7
    assert time.monotonic() - began < 45  # it does not wait for the child


def test_programs_that_end_while_they_are_written_to_break_no_pipe_of_another(there):
    """Closed under a writer, a file's number fails, or is another file's by then."""

    def many() -> list[bytes]:
        return [there.run(["head", "-c1"], stdin=b"x" * 70_000).stdout for _ in range(15)]

    with ThreadPoolExecutor(8) as pool:
        outputs = [work.result() for work in [pool.submit(many) for _ in range(8)]]
    assert outputs == [[b"x"] * 15] * 8


def test_both_streams_may_carry_megabytes_at_once(there):
    result = there.run(["sh", "-c", "head -c 6000000 /dev/zero & head -c 6000000 /dev/zero >&2; wait"], limit=8 << 20)
    assert (len(result.stdout), len(result.stderr)) == (6_000_000, 6_000_000)


def test_of_long_output_the_last_bytes_are_kept(there):
    result = there.run(["sh", "-c", "seq 1 200000; seq 1 200000 >&2"], limit=1000)
    assert len(result.stdout) == len(result.stderr) == 1000
    assert result.stdout.endswith(b"\n199999\n200000\n") and result.stderr == result.stdout


def test_past_its_deadline_a_program_and_its_children_are_gone(there):
    script = "trap '' TERM; (trap '' TERM; sleep 4711.1) & sleep 4711.2"
    before = time.monotonic()
    with pytest.raises(TimedOut) as caught:
        there.run(["sh", "-c", "echo last words >&2; " + script], timeout=0.5)
    assert time.monotonic() - before < 60
    assert "last words" in caught.value.evidence
    until(lambda: not alive("4711."))


def test_a_child_that_outlives_the_program_at_its_deadline_is_killed(there):
    with pytest.raises(TimedOut):
        there.run(["sh", "-c", "(trap '' TERM; exec sleep 4712.1) & sleep 4712.2"], timeout=0.5)
    until(lambda: not alive("4712."))


def test_a_child_that_keeps_the_streams_does_not_hold_us(there):
    before = time.monotonic()
    result = there.run(["sh", "-c", "setsid sleep 90.4713 & echo started"], timeout=30)
    assert (result.status, result.stdout) == (0, b"started\n")
    assert time.monotonic() - before < 60


def test_a_program_that_leaves_its_group_lives_on(there):
    assert there.run(["sh", "-c", "setsid -f sleep 4714 >/dev/null 2>&1 </dev/null"]).status == 0
    until(lambda: alive("sleep 4714"))
    there.run(["true"])
    (pid,) = alive("sleep 4714")
    os.kill(pid, signal.SIGKILL)


def test_sigint_is_not_ignored_by_what_is_started(there):
    ignored = there.run(["sh", "-c", "grep SigIgn /proc/self/status"]).stdout.split()[1]
    assert int(ignored, 16) & 0b110 == 0


def test_a_program_is_talked_to_while_it_runs(there):
    process = there.spawn(["sh", "-c", "while read line; do echo got $line; done; echo bye; exit 5"], deadline=30)
    process.write(b"one\n")
    assert process.read(timeout=PATIENCE) == b"got one\n"
    with pytest.raises(TimeoutError):
        process.read(timeout=0.05)
    assert process.poll() is None
    process.close_stdin()
    rest = b""
    while data := process.read(timeout=PATIENCE):
        rest += data
    assert (rest, process.poll()) == (b"bye\n", 5)
    with pytest.raises(BrokenPipeError):
        process.write(b"more")
    process.close()


def test_closing_ends_a_program_that_does_not_listen(there):
    process = there.spawn(["sh", "-c", "sleep 4715 & sleep 4715.5"], deadline=60)
    until(lambda: len(alive("sleep 4715")) >= 2)
    process.close()
    process.close()
    until(lambda: not alive("sleep 4715"))
    assert process.read() == b""


@pytest.mark.parametrize("size", [5_000_000, 12_000_000])  # it has ended before we read, and it has not
def test_a_reader_may_be_slow(there, size):
    process = there.spawn(["head", "-c", str(size), "/dev/zero"], deadline=60)
    time.sleep(3)  # longer than streams may linger after the program's end
    total = 0
    while data := process.read(1 << 20, timeout=PATIENCE):
        total += len(data)
    assert total == size
    process.close()


def test_twenty_programs_at_once_wait_for_each_other(there):
    results = []

    def one(number):
        results.append(there.run(["sh", "-c", f"sleep 0.2; echo {number}"]).stdout)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(f"{number}\n".encode() for number in range(20))


@pytest.mark.parametrize("argv", [[], ["echo", "a\0b"]])
def test_what_is_no_command_is_refused(there, argv):
    with pytest.raises(ValueError):
        there.run(argv)


# ---- small files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "with space", "quote'\"", "$HOME;x", "new\nline", "é", "-n", "*"])
@pytest.mark.parametrize("content", [b"", BYTES, b"no newline at the end"])
def test_a_small_file_is_written_whole(there, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(b"old, and longer than what comes" * 9)
    there.put(str(path), content, mode=0o640)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_small_file_needs_its_folder(there, tmp_path):
    with pytest.raises(RemoteFailed, match="its folder does not exist"):
        there.put(str(tmp_path / "none" / "file"), b"x")


def test_a_small_file_does_not_fall_into_a_folder_of_its_name(there, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(RemoteFailed):
        there.put(str(tmp_path / "folder"), b"x")
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


# ---- folders -----------------------------------------------------------------------------------------------------

TREE = {
    "config.json": b"{}",
    "model.safetensors": BYTES * 3000,
    "sub/folder/with space/é.txt": b"x",
    "sub/quote'\"$;\n-": b"y",
    "-leading": b"z",
    "empty": b"",
}


@pytest.fixture
def source(tmp_path) -> Path:
    """A folder as a Hugging Face cache has it: links to files elsewhere."""
    folder: Path = tmp_path / "source it"
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number, (name, content) in enumerate(TREE.items()):
        blob = blobs / str(number)
        blob.write_bytes(content)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(blob)
    (folder / "linked").symlink_to(folder / "sub")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def whole() -> dict[str, bytes]:
    linked = {name.replace("sub/", "linked/", 1): content for name, content in TREE.items() if name.startswith("sub/")}
    return {**TREE, **linked}


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_is_pushed_and_links_are_followed(there, source, tmp_path, slash):
    target, seen = tmp_path / "new" / "tar get'$", []
    there.push(source, f"{target}{slash}", progress=lambda done, total: seen.append((done, total)), timeout=60)
    assert tree(target) == whole()
    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1] == sum(map(len, whole().values()))
    assert seen == sorted(seen)


def test_a_second_push_only_sends_what_differs(there, source, tmp_path):
    target = tmp_path / "target"
    there.push(source, str(target), progress=lambda *_: None, timeout=60)
    kept = (target / "model.safetensors").stat().st_ino
    (source / "config.json").unlink()
    (source / "config.json").write_bytes(b'{"changed": 1}')
    there.push(source, str(target), progress=lambda *_: None, timeout=60)
    assert tree(target) == {**whole(), "config.json": b'{"changed": 1}'}
    assert (target / "model.safetensors").stat().st_ino == kept


def test_a_link_that_leads_nowhere_fails_the_push(there, source, tmp_path):
    (source / "dangling").symlink_to("/nowhere/at/all")
    with pytest.raises(RemoteFailed) as caught:
        there.push(source, str(tmp_path / "target"), progress=lambda *_: None, timeout=60)
    assert "dangling" in caught.value.evidence


def test_a_push_that_cannot_write_says_so(there, source):
    with pytest.raises(RemoteFailed, match="proc") as caught:
        there.push(source, "/proc/nothing/here", progress=lambda *_: None, timeout=60)
    assert caught.value.evidence


def test_a_folder_and_a_file_are_fetched(there, source, tmp_path):
    there.fetch(str(source), tmp_path / "folder", timeout=60)
    assert tree(tmp_path / "folder") == whole()
    there.fetch(str(source / "config.json"), tmp_path / "file", timeout=60)
    assert tree(tmp_path / "file") == {"config.json": b"{}"}
    with pytest.raises(RemoteFailed):
        there.fetch(str(tmp_path / "none"), tmp_path / "nothing", timeout=60)


# ---- ports -------------------------------------------------------------------------------------------------------


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/garbage":
            self.wfile.write(b"what?\r\n\r\n")
            return
        if self.path == "/drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(300):
                self.wfile.write(b"x")
                time.sleep(0.1)
            return
        size = int(self.path.rpartition("/")[2])
        self.send_response(200)
        self.send_header("X-Size", str(size))
        if not self.path.startswith("/bare"):
            self.send_header("Content-Length", str(size + 100 * self.path.startswith("/short")))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(201)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as serving:
        serving.handle_error = lambda *_: None  # type: ignore[method-assign]
        serving.daemon_threads = True
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_address[1]
        serving.shutdown()


@pytest.mark.parametrize("path", ["/0", "/1", "/300000", "/bare/300000"])
def test_a_body_arrives_whole(there, server, path):
    for _ in range(5):
        reply = request(there, "GET", server, path)
        assert (reply.status, len(reply.body)) == (200, int(path.rpartition("/")[2]))
        assert reply.headers["x-size"] == path.rpartition("/")[2]


def test_a_body_is_sent_whole(there, server):
    assert request(there, "POST", server, "/", body=BYTES * 1000).body == BYTES * 1000


@pytest.mark.parametrize("path", ["/garbage", "/short/1000"])
def test_an_answer_that_breaks_off_is_a_connection_error(there, server, path):
    with pytest.raises(ConnectionError):
        request(there, "GET", server, path)


def test_the_deadline_is_for_the_whole_exchange(there, server):
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        request(there, "GET", server, "/drip", timeout=0.8)
    assert time.monotonic() - before < 20


def test_nobody_listening_is_connection_refused(there):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        there.dial(port)
    with pytest.raises(ConnectionRefusedError):
        request(there, "GET", port, "/")


def test_of_many_refused_at_once_each_is_told_so(there):
    port = free_port()

    def dialled() -> list[str]:
        told = []
        for _ in range(20):
            try:
                there.dial(port)
            except OSError as error:
                told.append(type(error).__name__)
        return told

    with ThreadPoolExecutor(8) as pool:
        outcomes = [work.result() for work in [pool.submit(dialled) for _ in range(8)]]
    assert outcomes == [["ConnectionRefusedError"] * 20] * 8


def test_a_port_is_a_socket(there, server):
    stream = there.dial(server)
    stream.settimeout(10)
    stream.sendall(b"GET /5 HTTP/1.0\r\n\r\n")
    file = stream.makefile("rb")
    stream.close()  # as http.client does, before the body is read
    assert file.read().endswith(b"\r\n\r\nxxxxx")
    file.close()


# ---- connections -------------------------------------------------------------------------------------------------


def test_a_fresh_connection_outlives_the_first(there):
    second = there.fresh()
    third = second.fresh()
    second.close()
    assert third.run(["echo", "there"]).stdout == b"there\n"
    third.close()
    assert there.run(["echo", "still"]).stdout == b"still\n"


def test_programs_start_in_the_home_folder(there):
    inside = there.run(["sh", "-c", "pwd -P"]).stdout.decode().strip()
    assert inside == str(Path.home().resolve())
