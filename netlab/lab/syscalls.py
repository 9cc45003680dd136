"""The few system calls that Python 3.11 does not have, each raising OSError."""

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK, PR_SET_NO_NEW_PRIVS = 1, 29, 38
_SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}

_libc = ctypes.CDLL(None, use_errno=True)


class _SchedAttr(ctypes.Structure):
    """struct sched_attr, first published version (48 bytes; Linux include/uapi/linux/sched/types.h)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("sched_policy", ctypes.c_uint32),
        ("sched_flags", ctypes.c_uint64),
        ("sched_nice", ctypes.c_int32),
        ("sched_priority", ctypes.c_uint32),
        ("sched_runtime", ctypes.c_uint64),
        ("sched_deadline", ctypes.c_uint64),
        ("sched_period", ctypes.c_uint64),
    )


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces (unshare(2))."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into the namespace of `descriptor` (setns(2))."""
    _check(_libc.setns(descriptor, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount (mount(2)); `kind` None where the flags say all."""
    encoded = None if options is None else options.encode()
    name = None if kind is None else kind.encode()
    _check(_libc.mount(source.encode(), os.fsencode(target), name, ctypes.c_ulong(flags), encoded), f"mount {target}")


def prctl(option: int, value: int) -> None:
    """Set a process attribute (prctl(2))."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), "prctl")


def set_slice(duration: int) -> None:
    """Ask the fair scheduler for slices of `duration` ns: a shorter one is scheduled sooner (EEVDF, Linux 6.12)."""
    number = _SYS_SCHED_SETATTR.get(os.uname().machine)
    if number is None:
        raise OSError(38, "sched_setattr: unknown system call number on this machine")
    attr = _SchedAttr(size=ctypes.sizeof(_SchedAttr), sched_runtime=duration)
    _check(_libc.syscall(number, 0, ctypes.byref(attr), 0), "sched_setattr")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
