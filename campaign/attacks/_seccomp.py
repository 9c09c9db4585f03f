"""Let the system's own calls fail in this process from now on, whoever makes them.

A filter of the kernel's (seccomp) answers them with an error: so libraries in C and Rust meet the
full disk too, and neither a mount nor a privilege is needed. Writing through mapped memory is no
call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_X86 = {
    "write": 1,
    "pwrite64": 18,
    "writev": 20,
    "pwritev": 296,
    "pwritev2": 328,
    "sendfile": 40,
    "copy_file_range": 326,
    "fallocate": 285,
    "ftruncate": 77,
    "truncate": 76,
    "fsync": 74,
    "fdatasync": 75,
    "msync": 26,
    "rename": 82,
    "renameat": 264,
    "renameat2": 316,
    "mkdir": 83,
    "mkdirat": 258,
    "unlink": 87,
    "unlinkat": 263,
    "rmdir": 84,
    "open": 2,
    "openat": 257,
    "creat": 85,
    "chmod": 90,
    "fchmodat": 268,
}
_ARM = {
    "write": 64,
    "pwrite64": 68,
    "writev": 66,
    "pwritev": 70,
    "pwritev2": 287,
    "sendfile": 71,
    "copy_file_range": 285,
    "fallocate": 47,
    "ftruncate": 46,
    "truncate": 45,
    "fsync": 82,
    "fdatasync": 83,
    "msync": 227,
    "renameat": 38,
    "renameat2": 276,
    "mkdirat": 34,
    "unlinkat": 35,
    "openat": 56,
    "fchmodat": 53,
}
NUMBERS = {"x86_64": _X86, "aarch64": _ARM}

WRITING = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile", "copy_file_range")
"""The first argument is the file; of the last two the one that is written or read."""
SIZING = ("fallocate",)
SYNCING = ("fsync", "fdatasync", "msync")
NAMING = ("rename", "renameat", "renameat2", "mkdir", "mkdirat")
CHANGING = ("unlink", "unlinkat", "rmdir", "ftruncate", "truncate", "chmod", "fchmodat")
OPENING = {"open": 1, "openat": 2}
"""Which argument the flags are."""

FULL = (*WRITING, *SIZING, "mkdir", "mkdirat")
FAILING = {
    errno.ENOSPC: (FULL, os.O_CREAT),
    errno.EDQUOT: (FULL, os.O_CREAT),
    errno.EIO: ((*WRITING, *SIZING, *SYNCING), 0),
    errno.EROFS: ((*NAMING, *CHANGING, *SIZING), os.O_CREAT | os.O_WRONLY | os.O_RDWR),
}
"""For each error, which calls give it, and the flags that make opening one of them."""

LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBER, ARGUMENTS = 0, 16


def why_not() -> str | None:
    """Why this machine has no such filters; None where it has."""
    if platform.system() != "Linux" or platform.machine() not in NUMBERS:
        return "seccomp filters are Linux's, on x86_64 or aarch64"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fail(errno.ENOSPC, spare=-1)
            try:
                os.write(os.open(os.devnull, os.O_WRONLY), b"x")
            except OSError as error:
                status = 0 if error.errno == errno.ENOSPC else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return "the kernel takes no seccomp filter here" if status else None


def fail(number: int, *, spare: int) -> None:
    """From now on calls fail with this error; writing to the file `spare` still succeeds."""
    code = b"".join(_filter(number, spare))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    program = Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    # No new privileges (38), as a filter without any requires; then the filter itself (22, 2).
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter")


def _filter(number: int, spare: int) -> list[bytes]:
    numbers = NUMBERS[platform.machine()]
    failing, flags = FAILING[number]
    code: list[bytes] = []

    def step(what: int, value: int, if_so: int = 0, if_not: int = 0) -> None:
        code.append(struct.pack("HBBI", what, if_so, if_not, value & 0xFFFFFFFF))

    for name in failing:
        if name not in numbers:
            continue
        step(LOAD, NUMBER)
        if name in WRITING:
            step(EQUAL, numbers[name], 0, 3)
            step(LOAD, ARGUMENTS)
            step(EQUAL, spare, 1, 0)
        else:
            step(EQUAL, numbers[name], 0, 1)
        step(RETURN, ERROR | number)
    for name, place in OPENING.items():
        if flags and name in numbers:
            step(LOAD, NUMBER)
            step(EQUAL, numbers[name], 0, 3)
            step(LOAD, ARGUMENTS + 8 * place)
            step(ANY_BIT, flags, 0, 1)
            step(RETURN, ERROR | number)
    step(RETURN, ALLOW)
    return code
