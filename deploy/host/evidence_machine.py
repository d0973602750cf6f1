"""What a host has to do with a run: connections, disks, memory, GPUs, the kernel's words: a part of `evidence`.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import os
import re
import time

from deploy.host.answers import file, program
from deploy.host.family import Member, title
from deploy.host.sockets import open_sockets, parse_address

# Of include/net/tcp_states.h; one that stays in SYN_SENT is a rank that does not reach another.
TCP = {
    1: "ESTABLISHED", 2: "SYN_SENT", 3: "SYN_RECV", 4: "FIN_WAIT1", 5: "FIN_WAIT2", 6: "TIME_WAIT", 7: "CLOSE",
    8: "CLOSE_WAIT", 9: "LAST_ACK", 10: "LISTEN", 11: "CLOSING",
}  # fmt: skip
LARGEST = 200  # lines of a list
MEMORY = (
    "MemTotal MemFree MemAvailable Cached Shmem SwapTotal SwapFree CommitLimit Committed_AS HugePages_Total".split()
)
PRESSURE = ("/proc/pressure/memory", "/proc/pressure/io", "/proc/pressure/cpu")
CONTROL = "memory.max memory.current memory.peak memory.events pids.max pids.current".split()
ALARMING = "out of memory|oom|killed process|nvrm|xid|nvidia|segfault|general protection|i/o error|nfs|hung task".split(
    "|"
)
RINGS = (("dmesg", "-T"), ("journalctl", "-k", "-n", "1000", "--no-pager", "-o", "short-iso"))
REFUSED = re.compile(r"\Athere is no |ended with status \d+\)\n\Z|no answer within|-- No entries --")
UNREADABLE = "what the kernel said cannot be read, so nothing is known of an OOM kill or a GPU error"
QUERIES = (
    (),
    (
        "--query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,power.draw,temperature.gpu,pstate",
        "--format=csv",
    ),
    ("--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name", "--format=csv"),
)


def connections(members: dict[int, Member], port: int) -> str:
    """The TCP sockets of the run's processes, and who else listens on its port."""
    owners: dict[int, list[int]] = {}
    for pid in members:
        for inode in open_sockets(str(pid)):
            owners.setdefault(inode, []).append(pid)
    lines = []
    for name in ("tcp", "tcp6"):
        for row in file(f"/proc/net/{name}").splitlines()[1:]:
            fields = row.split()
            (here, ours), (there, theirs), state = (
                *map(parse_address, fields[1:3]),
                TCP.get(int(fields[3], 16), fields[3]),
            )
            pids = owners.get(int(fields[9]), [])
            if pids or (ours == port and state == "LISTEN"):
                whose = ",".join(map(str, pids)) or f"not the run's, of user {fields[7]}"
                lines.append(f"{state:12} {f'{here}:{ours}':28} {f'{there}:{theirs}':28} {whose}")
    lines.sort(key=lambda line: (line.startswith("ESTABLISHED"), line))
    more = [f"({len(lines) - LARGEST} more)"] if len(lines) > LARGEST else []
    return "\n".join([f"port {port} is the run's; the TCP sockets of its processes:", *lines[:LARGEST], *more]) + "\n"


def disks(paths: list[str], each: float) -> str:
    """Room and inodes where the run, its model and its caches are."""
    there = [
        path for path in dict.fromkeys([*paths, "/tmp", "/dev/shm", os.path.expanduser("~")]) if os.path.exists(path)
    ]
    return program(each, "df", "-hT", "--", *there) + "\n" + program(each, "df", "-i", "--", *there)


def shared_memory() -> str:
    """What lies in /dev/shm, the largest first: NCCL, CUDA and SGLang leave segments of processes that are dead."""
    rows = []
    with os.scandir("/dev/shm") as folder:
        for entry in folder:
            about = entry.stat(follow_symlinks=False)
            about_it = f"{about.st_size:14} {about.st_uid:6} {time.ctime(about.st_mtime)}"
            rows.append((about.st_size, f"{about_it}  {entry.name}{maker(entry.name)}"))
    rows.sort(reverse=True)
    head = f"{len(rows)} entries\n         bytes   user  changed                   name\n"
    return head + "\n".join(line for _, line in rows[:LARGEST]) + "\n"


def maker(name: str) -> str:
    """Whether who made a segment is gone, where its name tells: sgl_shm_KIND_PID_..., multi_tokenizer_args_PID."""
    pid = re.search(r"^(?:sgl_shm_\w+?|multi_tokenizer_args)_(\d+)(?:_|$)", name)
    return "  (its maker is gone)" if pid and not os.path.exists(f"/proc/{pid[1]}") else ""


def memory(members: dict[int, Member]) -> str:
    """The host's, that of the control group that the run is in, and how long processes waited for it."""
    told = [line for line in file("/proc/meminfo").splitlines() if line.partition(":")[0] in MEMORY]
    told.append("load " + file("/proc/loadavg").strip())
    told += [f"-- {path}\n{file(path).strip()}" for path in PRESSURE]
    for group in dict.fromkeys(control_group(pid) for pid in members):
        limits = (f"/sys/fs/cgroup{group}/{name}" for name in CONTROL)
        told += [f"-- {path}\n{file(path).strip()}" for path in limits if os.path.exists(path)]
    for pid in list(members)[-1:]:
        told.append(f"-- limits of {pid} {title(pid)[:60]}\n{file(f'/proc/{pid}/limits').strip()}")
    return "\n".join(told) + "\n"


def control_group(pid: int) -> str:
    """Its place in the unified hierarchy."""
    lines = file(f"/proc/{pid}/cgroup").splitlines()
    return next((line[3:] for line in lines if line.startswith("0::")), "").rstrip("/")


def gpus(each: float) -> str:
    """What nvidia-smi shows, also of a broken driver; where it hangs, it is not asked again."""
    told = ""
    for query in QUERIES:
        words = program(each, "nvidia-smi", *query)
        told += words + "\n"
        if words.startswith(("there is no", "nvidia-smi: no answer")):
            break
    return told


def kernel_words(each: float) -> str:
    """What the kernel said last, and before that all that sounds like trouble."""
    refused = ""
    for argv in RINGS:
        text = program(each, *argv)
        if not REFUSED.search(text):
            break
        refused += text
    else:
        return f"{UNREADABLE}\n{refused}"
    lines = text.splitlines()
    alarming = [line for line in lines[:-LARGEST] if any(word in line.lower() for word in ALARMING)]
    return "\n".join(["-- alarming, earlier", *alarming[-LARGEST:], "-- the last", *lines[-LARGEST:]]) + "\n"
