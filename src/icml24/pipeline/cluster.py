"""Run chapters on a Dask cluster: the same runner, another executor.

Whatever can stand behind a Dask scheduler (a laptop, ``dask-jobqueue``, Kubernetes)
works. A lost worker's chapter is moved to another by the scheduler; a chapter that
loses its worker again and again is given up and reported.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from icml24.pipeline.errors import ClusterError
from icml24.pipeline.kernels import kill_kernels

__all__ = ["DaskExecutor", "connect"]

CONNECT_TIMEOUT_S = 15
KILL_TIMEOUT_S = 3


class DaskExecutor(Executor):
    """An executor over a Dask client that can also end the kernels of a run.

    Parameters
    ----------
    client : distributed.Client
        Stays open when the executor is shut down.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # Dask takes equal calls for the same task unless told otherwise; a forced re-run is an equal call.
        self._inner = client.get_executor(pure=False, retries=0)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Send a call to a worker."""
        return self._inner.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls."""
        del cancel_futures
        self._inner.shutdown(wait=wait)

    def kill_kernels(self, token: str) -> None:
        """End the kernels of a run on all workers; a cluster that does not answer is not waited for."""

        def ask() -> None:
            with contextlib.suppress(Exception):
                self._client.run(kill_kernels, token, on_error="ignore")

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(KILL_TIMEOUT_S)


@contextlib.contextmanager
def connect(address: str) -> Iterator[DaskExecutor]:
    """Connect to a scheduler for the length of a run.

    Parameters
    ----------
    address : str
        As Dask prints it: ``tcp://host:8786``.

    Raises
    ------
    ClusterError
        Nobody answers there, or the scheduler has no worker.
    """
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({error or type(error).__name__}). Expected the address "
            "that `dask scheduler` prints, such as tcp://host:8786, and the same version of distributed there."
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
        except TimeoutError as error:
            raise ClusterError(
                f"the scheduler at {address} has no worker. Start one with `dask worker {address}`."
            ) from error
        yield DaskExecutor(client)
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=KILL_TIMEOUT_S)
