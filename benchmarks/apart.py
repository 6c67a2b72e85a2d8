"""A solver in a process of its own: out of memory or of time, it stops there and nowhere else."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

try:
    import resource
except ImportError:  # Windows sets no limits
    resource = None


def _answer(send: Connection, memory: float, work: Callable, arguments: tuple) -> None:
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    try:
        send.send(work(*arguments))
    except (MemoryError, RuntimeError):
        send.send(None)


def answer(work: Callable, *arguments: Any, seconds: float, memory: float) -> Any:
    """``work(*arguments)``, or None if it raises, dies, or needs more seconds or bytes than these."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(send, memory, work, arguments), daemon=True)
    process.start()
    send.close()
    try:
        return receive.recv() if receive.poll(seconds) else None
    except EOFError:  # it died without a word
        return None
    finally:
        process.kill()
        process.join()
