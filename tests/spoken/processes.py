"""What a server's processes, its ports and its memory let it say."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import random
import signal
import socket
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from tests.spoken import alike, killed, module, replaced, says

NEXT = 40  # ports

# ---- the processes of a server


@says("S01", "entrypoints.engine")
def died() -> None:
    with killed(signal.SIGKILL) as child:
        raise module("entrypoints.engine")._scheduler_died_error(2, child)


@says("S02", "entrypoints.engine")  # up to 0.5.9 or so
def dead() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    writer.close()
    with killed(signal.SIGKILL) as child, contextlib.suppress(EOFError):
        module("entrypoints.engine")._wait_for_scheduler_ready([reader], [child])


@says("S45", "utils.watchdog")
def crashed() -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    with killed(signal.SIGKILL) as child:
        module("utils.watchdog").SubprocessWatchdog([child], ["scheduler_2"])._check_processes()
    signal.signal(signal.SIGQUIT, before)


@says("S42", "utils.watchdog")
def stuck() -> None:
    """The soft one: the hard one ends the parent, which is us."""
    watchdog = module("utils.watchdog")
    dog = object.__new__(watchdog.WatchdogRaw)
    vars(dog).update(debug_name="Scheduler", watchdog_timeout=0.01, soft=True, dump_info=None)
    vars(dog).update(get_counter=lambda: 0, is_active=lambda: True)
    with replaced(watchdog, pyspy_dump_schedulers=lambda: None):
        dog._watchdog_once()


@says("S43", "entrypoints.http_server")
def unhealthy() -> None:
    """Nobody answers the one token it asks for."""
    server = module("entrypoints.http_server")

    async def silence(*_: Any) -> Any:
        await asyncio.sleep(60)
        yield {}

    manager = alike(gracefully_exit=False, server_status="Up", is_generation=True, last_receive_tstamp=0.0)
    vars(manager).update(generate_request=silence, rid_to_state={}, is_image_gen=False)
    request = alike(url=alike(path="/health_generate"))
    with replaced(server, HEALTH_CHECK_TIMEOUT=1, _global_state=alike(tokenizer_manager=manager)):
        asyncio.run(server.health_generate(request))


@says("S58", "entrypoints.engine")
def follower() -> None:
    """The handler lies in the function that starts a node's processes, and is taken out of it."""
    engine = module("entrypoints.engine")
    names = {**vars(engine), "get_parallel": lambda: alike(node_rank=1)}
    handler = next(_inside(code, "sigterm_handler") for code in _codes(engine) if _inside(code, "sigterm_handler"))
    FunctionType(handler, names)(signal.SIGTERM, None)


def _codes(engine: Any) -> Iterator[CodeType]:
    for found in vars(engine).values():
        for one in [found, *vars(found).values()] if isinstance(found, type) else [found]:
            code = getattr(getattr(one, "__func__", one), "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _inside(code: CodeType, name: str) -> Any:
    return next((one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name), None)


# ---- ports and hosts


@contextlib.contextmanager
def taken() -> Iterator[int]:
    """A port that somebody listens on, below those that the kernel gives away to other servers of this machine."""
    port = next(port for port in random.sample(range(12000, 30000, NEXT), 100) if free(port))
    with socket.socket() as other:
        other.bind(("0.0.0.0", port))
        other.listen()
        yield port


def free(port: int) -> bool:
    """Whether it can be had, and the next ones, by which SGLang counts on from it."""
    with contextlib.ExitStack() as stack:
        try:
            for number in range(port, port + NEXT):
                stack.enter_context(socket.socket()).bind(("0.0.0.0", number))
        except OSError:
            return False
    return True


@says("S10", "utils.network")
def port_taken() -> None:
    network = module("utils.network")
    with taken() as port, replaced(network, time=alike(sleep=lambda _: None)):
        network.wait_port_available(port, "nccl_port", 16)


@says("S10", "server_args")
def ports_taken() -> None:
    """With data parallel attention they are counted from the rendezvous' own."""
    arguments, network = module("server_args"), module("utils.network")
    view = alike(decoupled_spec_role="null", enable_dp_attention=True, attn_dp_size=2, dp_size=2)
    with taken() as port, contextlib.ExitStack() as stack:
        server = alike(**vars(view), nnodes=2, dist_init_addr=f"127.0.0.1:{port}", nccl_port=port, port=port)
        vars(server).update(tokenizer_worker_num=1, enable_multi_tokenizer=False)
        stack.enter_context(replaced(network, time=alike(sleep=lambda _: None)))
        stack.enter_context(
            replaced(arguments, resolving_view=lambda _: server, attn_dp_enabled_of=lambda _: True, ep_joiner_of=bool)
        )
        stack.enter_context(replaced(arguments, ep_scale_joiner_of=lambda _: False))
        arguments.PortArgs.init_new(server)


# ---- memory


@says("S12", "model_executor.pool_configurator")
def no_room() -> None:
    module("model_executor.pool_configurator").MemoryPoolConfig(max_total_num_tokens=0, mem_fraction_static=0.7)


@says("host-memory", "torch")
def no_memory() -> None:
    importlib.import_module("torch").empty(1 << 55)


@says("S15", "distributed.bootstrap")
def unbalanced() -> None:
    module("distributed.bootstrap")._check_tp_memory_balance(pre_model_load_memory=40.0, local_gpu_memory=93.4)


@says("S16", "model_executor.model_runner_components.load_model_utils")
def others_missing() -> None:
    """The barrier of a group of two, of which the other does not come."""
    loading = module("model_executor.model_runner_components.load_model_utils")

    def waited(**_: Any) -> None:
        raise RuntimeError("Rank 0 timed out: it waited for 1 other rank")

    with replaced(loading.dist, monitored_barrier=waited):
        loading.dist_barrier_after_load(elastic_ep_backend=None, tp_rank=2)
