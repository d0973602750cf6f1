"""What only GPUs let it say: what asks them is replaced."""

from __future__ import annotations

import contextlib
import os
from typing import Any
from unittest.mock import patch

from tests.spoken import alike, module, replaced, says

# ---- what needs a GPU otherwise


@says("S29", "speculative.draft_utils")
def backend_of_the_target() -> None:
    factory = object.__new__(module("speculative.draft_utils").DraftBackendFactory)
    factory.draft_model_runner = alike(use_mla_backend=False)
    factory._create_trtllm_mla_decode_backend()


def custom_all_reduce(peer: bool, ranks: int) -> None:
    """On GPUs that have no NVLink."""
    utils = module("distributed.device_communicators.custom_all_reduce_utils")
    dist = alike(get_backend=lambda _: "gloo", Backend=alike(NCCL="nccl"), get_rank=lambda group: 0)
    vars(dist).update(get_world_size=lambda group: ranks, all_gather=lambda *_, **__: None)
    names: dict[str, Any] = {"is_full_nvlink": lambda *_: False, "can_p2p": lambda *_: peer}
    names |= {"in_the_same_node_as": lambda *_, **__: [True]}
    with replaced(utils, dist=dist, **names), patch.dict(os.environ, CUDA_VISIBLE_DEVICES="0,1,2,3"):
        utils.can_use_custom_all_reduce_with_nvlink(None, alike(index=0), [2, 4, 6, 8], "Custom allreduce")


@says("S24", "distributed.device_communicators.custom_all_reduce_utils")
def four_gpus() -> None:
    custom_all_reduce(True, 4)


@says("S24", "distributed.device_communicators.custom_all_reduce_utils")
def no_peer() -> None:
    custom_all_reduce(False, 2)


@says("S05", "distributed.device_communicators.pynccl")
def with_nccl() -> None:
    """The last word before the ranks look for each other."""
    nccl = module("distributed.device_communicators.pynccl")
    dist = alike(is_initialized=lambda: True, get_backend=lambda _: "gloo", Backend=alike(NCCL="nccl"))
    vars(dist).update(get_rank=lambda _: 0, get_world_size=lambda _: 2)
    library = alike(ncclGetRawVersion=lambda: 22707, ncclGetVersion=lambda: "2.27.7")
    with replaced(nccl, dist=dist, NCCLLibrary=lambda _: library), contextlib.suppress(AttributeError):
        nccl.PyNcclCommunicator(group=None, device=0)


@says("S19", "model_executor.model_runner_components.cuda_graph_setup")
def capturing() -> None:
    setup = module("model_executor.model_runner_components.cuda_graph_setup")
    kind = alike(is_speculative=lambda: True)
    runner = alike(is_draft_worker=False, spec_algorithm=kind, is_generation=True, device="cuda", gpu_id=0)
    runner.decode_num_tokens_per_req = lambda: 4

    def captured() -> None:
        raise FileNotFoundError("nvcc")

    platform = alike(device_name="cuda", get_graph_runner_cls=captured)
    names = {"get_available_gpu_memory": lambda *_: 7.31, "current_platform": platform}
    names |= {"get_disagg": lambda: alike(disaggregation_mode="null"), "get_model": lambda: alike(model_impl="auto")}
    names |= {"check_cuda_graph_backend": lambda *_: False}
    graph = alike(cuda_graph_config=alike(decode=alike(backend="full")))
    with replaced(setup, **names, get_exec=lambda: alike(graph=graph)), contextlib.suppress(FileNotFoundError):
        setup.capture_decode_graph(model_runner=runner)


@says("S20", "model_executor.runner.decode_cuda_graph_runner")
def at_the_first_size() -> None:
    runners = module("model_executor.runner.decode_cuda_graph_runner")
    one = alike(model_runner=alike(device="cuda", gpu_id=0), capture_bs=[1, 2, 4], record_nolora_graph=False)
    vars(one).update(attention_graph_variants=None)
    names = {"get_available_gpu_memory": lambda *_, **__: 7.31, "get_parallel": lambda: alike(tp_rank=0)}
    with replaced(runners, **names), contextlib.suppress(AttributeError):  # it goes on to what we have not
        runners.DecodeCudaGraphRunner._capture_one_stream(one)


@says("S21", "distributed.device_communicators.custom_all_reduce")
def registering() -> None:
    reduce = module("distributed.device_communicators.custom_all_reduce")
    one = object.__new__(reduce.CustomAllreduce)
    vars(one).update(_ptr=0, rank=0, group=None, disabled=True)
    ops = alike(get_graph_buffer_ipc_meta=lambda _: ([], [0] * 1610), register_graph_buffers=lambda *_: None)
    with replaced(reduce, ops=ops):
        one.register_graph_buffers()


@says("S22", "distributed.device_communicators.custom_all_reduce_v2")
def half_made() -> None:
    """Its constructor gave up before it made what it sums with."""
    reduce = module("distributed.device_communicators.custom_all_reduce_v2")
    one = object.__new__(reduce.CustomAllReduceV2)
    vars(one).update(disabled=True, override_algo=None, _graph_mode_allowed=False)
    one._eager_plan = lambda *_: (alike(all_reduce=None), "", False)
    one.custom_all_reduce(alike(numel=lambda: 1, element_size=lambda: 2, dtype=None))


@says("S25", "layers.deep_gemm_wrapper.compile_utils")
def warming() -> None:
    compiling = module("layers.deep_gemm_wrapper.compile_utils")
    flags = {"_ENABLE_JIT_DEEPGEMM_PRECOMPILE": True, "_DO_COMPILE_ALL": True, "_IN_PRECOMPILE_STAGE": False}

    def compiled(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("nvcc")

    kinds = compiling.DeepGemmKernelType
    flags |= {"_IS_FIRST_RANK_ON_NODE": True}
    with replaced(compiling, **flags, _compile_deep_gemm_one_type_all=compiled), contextlib.suppress(FileNotFoundError):
        compiling._maybe_compile_deep_gemm_one_type_all(kinds.GROUPED_GEMM_NT_F8F8BF16_MASKED, 1, 1, 1)
