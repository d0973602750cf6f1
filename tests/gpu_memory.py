"""Hold memory of a real GPU until stdin ends: `python gpu_memory.py INDEX MIB`. By CUDA's driver API, without torch."""

from __future__ import annotations

import ctypes
import sys


def main(index: int, mib: int) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    for name, *words in (
        ("cuInit", 0),
        ("cuDeviceGet", ctypes.byref(device), index),
        ("cuCtxCreate_v2", ctypes.byref(context), 0, device),
        ("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(mib << 20)),
    ):
        if status := getattr(cuda, name)(*words):
            sys.exit(f"{name}: CUDA error {status}")
    print("held", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
