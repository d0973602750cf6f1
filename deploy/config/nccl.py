"""NCCL's environment, typed: the variables that a deployment may have a reason to set, each with what it does."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from deploy.config.schema import COUNT, INDEX, Part

Switch = Literal["0", "1"]
Tried = Literal["0", "1", "2"]  # 2: where it can be had
Count = Annotated[str, StringConstraints(pattern=COUNT)]
Index = Annotated[str, StringConstraints(pattern=INDEX)]
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
Distance = Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS", "0", "1", "2", "3", "4", "5"]


class Nccl(Part):
    """NCCL variables without their prefix: `DEBUG` is NCCL_DEBUG. What is not set is left to NCCL."""

    DEBUG: Literal["VERSION", "WARN", "ATTN", "INFO", "ABORT", "TRACE"] | None = Field(
        default=None, description="How much NCCL logs; INFO tells which transport and which interface it took."
    )
    DEBUG_SUBSYS: Text | None = Field(default=None, description="What INFO is about, as in INIT,NET,GRAPH.")
    DEBUG_FILE: Text | None = Field(default=None, description="A file for its log; %h is the host and %p the process.")
    SOCKET_IFNAME: Text | None = Field(
        default=None, description="Interfaces for its TCP connections, by prefix; ^ excludes, = wants the exact name."
    )
    SOCKET_FAMILY: Literal["AF_INET", "AF_INET6"] | None = Field(default=None, description="Force IPv4 or IPv6.")
    SOCKET_NTHREADS: Count | None = Field(default=None, description="Threads for each TCP connection, 1 to 16.")
    NSOCKS_PERTHREAD: Count | None = Field(default=None, description="Sockets for each of these threads.")
    NET: Text | None = Field(default=None, description="The network to take: Socket, IB, or a plug-in's name.")
    NET_PLUGIN: Text | None = Field(
        default=None, description="A network plug-in's suffix or file; none switches it off."
    )
    NET_GDR_LEVEL: Distance | None = Field(
        default=None, description="How far apart GPU and network card may be for GPUDirect RDMA."
    )
    NET_GDR_READ: Switch | None = Field(default=None, description="1: send by GPUDirect RDMA as well.")
    IB_DISABLE: Switch | None = Field(default=None, description="1: no InfiniBand or RoCE, plain TCP instead.")
    IB_HCA: Text | None = Field(default=None, description="The RDMA cards to take, as in mlx5_0,mlx5_1; ^ excludes.")
    IB_GID_INDEX: Index | None = Field(
        default=None, description="The GID index that RoCE uses; -1 lets NCCL choose, as it does from 2.21 on."
    )
    IB_ROCE_VERSION_NUM: Literal["1", "2"] | None = Field(
        default=None, description="The RoCE version of the GID that NCCL chooses."
    )
    IB_ADDR_FAMILY: Literal["AF_INET", "AF_INET6"] | None = Field(
        default=None, description="The family of the GID that NCCL chooses."
    )
    IB_ADDR_RANGE: Text | None = Field(
        default=None, description="The network of the GID that NCCL chooses, as in 10.1.0.0/16."
    )
    IB_PKEY: Count | None = Field(default=None, description="The index of InfiniBand's partition key.")
    IB_MERGE_NICS: Switch | None = Field(default=None, description="0: the ports of a card stay apart.")
    IB_TIMEOUT: Count | None = Field(default=None, description="InfiniBand time-out, 4.096 us * 2^n.")
    IB_RETRY_CNT: Count | None = Field(default=None, description="InfiniBand retries.")
    IB_SL: Count | None = Field(default=None, description="InfiniBand service level.")
    IB_TC: Count | None = Field(default=None, description="InfiniBand or RoCE traffic class.")
    IB_QPS_PER_CONNECTION: Count | None = Field(default=None, description="Queue pairs for each connection.")
    IB_SPLIT_DATA_ON_QPS: Switch | None = Field(default=None, description="1: split each message over the queue pairs.")
    IB_PCI_RELAXED_ORDERING: Tried | None = Field(
        default=None, description="Relaxed PCI ordering; 2 takes it where it is there, and helps in virtual machines."
    )
    IB_ADAPTIVE_ROUTING: Switch | None = Field(default=None, description="1: adaptive routing for large messages.")
    DMABUF_ENABLE: Switch | None = Field(default=None, description="0: no DMA-BUF for GPUDirect RDMA.")
    CROSS_NIC: Tried | None = Field(default=None, description="Whether rings may change network cards.")
    P2P_DISABLE: Switch | None = Field(
        default=None,
        description="1: no direct access between GPUs. Slower; the way out where IOMMU or ACS makes it hang.",
    )
    P2P_LEVEL: Distance | None = Field(default=None, description="How far apart two GPUs may be for direct access.")
    P2P_DIRECT_DISABLE: Switch | None = Field(default=None, description="1: no direct access within one process.")
    IGNORE_DISABLED_P2P: Tried | None = Field(
        default=None, description="1: no word where the driver refuses P2P between GPUs that are connected."
    )
    SHM_DISABLE: Switch | None = Field(default=None, description="1: no shared memory between the GPUs of a host.")
    CUMEM_ENABLE: Switch | None = Field(default=None, description="CUDA's virtual memory functions; SGLang sets 0.")
    CUMEM_HOST_ENABLE: Switch | None = Field(default=None, description="The same for host memory.")
    NVLS_ENABLE: Tried | None = Field(default=None, description="NVLink SHARP; SGLang sets 0.")
    MNNVL_ENABLE: Tried | None = Field(
        default=None, description="NVLink between hosts; with 1 NCCL does not start without."
    )
    COLLNET_ENABLE: Switch | None = Field(
        default=None, description="1: collectives in the network, where there is a plug-in."
    )
    PXN_DISABLE: Switch | None = Field(default=None, description="1: no detour over another GPU's network card.")
    ALGO: Text | None = Field(default=None, description="The algorithms allowed, as in Ring or ^Tree.")
    PROTO: Text | None = Field(default=None, description="The protocols allowed, as in LL,LL128,Simple.")
    BUFFSIZE: Count | None = Field(default=None, description="Bytes of each buffer between two GPUs.")
    NTHREADS: Literal["64", "128", "256", "512"] | None = Field(default=None, description="CUDA threads for a block.")
    MIN_NCHANNELS: Count | None = Field(default=None, description="At least so many channels.")
    MAX_NCHANNELS: Count | None = Field(default=None, description="At most so many channels.")
    MIN_CTAS: Count | None = Field(default=None, description="At least so many CUDA blocks.")
    MAX_CTAS: Count | None = Field(default=None, description="At most so many CUDA blocks.")
    TOPO_FILE: Text | None = Field(default=None, description="An XML file with the topology, where the host hides it.")
    TOPO_DUMP_FILE: Text | None = Field(default=None, description="Where to write the topology that it found.")
    GRAPH_FILE: Text | None = Field(default=None, description="An XML file with the rings and trees to use.")
    IGNORE_CPU_AFFINITY: Switch | None = Field(default=None, description="1: place threads by the GPU alone.")
    RUNTIME_CONNECT: Switch | None = Field(default=None, description="0: connect everything at the start.")
    RAS_ENABLE: Switch | None = Field(default=None, description="0: without its status service.")
    HOSTID: Text | None = Field(
        default=None, description="Replaces the host's identity, where two hosts look like one."
    )
    TUNER_PLUGIN: Text | None = Field(default=None, description="A tuner plug-in's file.")
    CONF_FILE: Text | None = Field(default=None, description="A file with more variables.")

    def variables(self) -> dict[str, str]:
        """What is set, by names without the prefix."""
        return {name: value for name, value in self if value is not None}
