"""What NCCL makes of a variable: each case is a line of somebody's environment."""

import pytest

from deploy.config import nccl_words

RIGHT = """
NCCL_P2P_DISABLE=1
NCCL_P2P_DISABLE=
NCCL_IB_DISABLE=0x1
NCCL_P2P_LEVEL=SYS
NCCL_P2P_LEVEL=4
NCCL_P2P_LEVEL=9
NCCL_NET_GDR_LEVEL=0
NCCL_DEBUG=info
NCCL_DEBUG=ATTN
NCCL_ALGO=Ring
NCCL_ALGO=allreduce:^tree,nvls;broadcast:ring
NCCL_PROTO=^LL128
NCCL_NVLS_ENABLE=2
NCCL_IB_GID_INDEX=-1
NCCL_NTHREADS=512
NCCL_MAX_NCHANNELS=16
NCCL_BUFFSIZE=16777216
NCCL_TOPO_FILE=/etc/topology.xml
NCCL_SOCKET_IFNAME=^=docker0,lo
NCCL_WIN_ENABLE=0
NCCL_RAS_ADDR=localhost:28029
GLOO_SOCKET_IFNAME=eth0
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600
HCCL_SOCKET_IFNAME=eth0
RCCL_DEBUG=1
NVCC_FLAGS=-O3
PATH=/bin
SGLANG_HOST_IP=10.0.0.1
""".split()

WRONG = [
    ("NCCL_P2P_DISABLE=true", "is read as 0", "set NCCL_P2P_DISABLE=1", True),
    ("NCCL_IB_DISABLE=no", "is read as 0", "set NCCL_IB_DISABLE=0", True),
    ("NCCL_BUFFSIZE=4M", "is read as 4:", "set NCCL_BUFFSIZE=4194304", True),
    ("NCCL_IB_GID_INDEX=three", "is read as 0", "set a number", True),
    ("NCCL_WIN_ENABLE=on", "is read as 0", "set NCCL_WIN_ENABLE=1", True),
    ("NCCL_ALGO=Rings", "has no 'Rings', and will not start", "did you mean Ring?", True),
    ("NCCL_PROTO=LL;allreduce:Simpel", "has no 'Simpel'", "did you mean Simple?", True),
    ("NCCL_ALGO=Star", "has no 'Star'", "known: Ring, Tree", True),
    ("NCCL_IB_SL=08", "is read as 0", "set a number", True),
    ("NCCL_P2P_LEVEL=phb", "is ignored", "did you mean PHB?", False),
    ("NCCL_SOCKET_FAMILY=IPv4", "is ignored", "one of AF_INET, AF_INET6", False),
    ("NCCL_IB_TIMEOUT=50", "out of its range", "0 to 31", False),
    ("NCCL_NTHREADS=100", "none of its values", "64, 128, 256, 512", False),
    ("NCCL_CROSS_NIC=5", "none of its values", "0, 1, 2", False),
    ("NCCL_P2P_DISBLE=1", "has no variable", "did you mean NCCL_P2P_DISABLE?", False),
    ("NCCL_SOCKET_IFNAMES=eth0", "has no variable", "did you mean NCCL_SOCKET_IFNAME?", False),
    ("NCLL_DEBUG=INFO", "no variable of NCCL's", "did you mean NCCL_DEBUG?", False),
    ("nccl_debug=INFO", "no variable of NCCL's", "did you mean NCCL_DEBUG?", False),
    ("GLOO_SOCKET_IF=eth0", "no variable of NCCL's", "did you mean GLOO_SOCKET_IFNAME?", False),
    ("NCCL_IB_CUDA_SUPPORT=1", "not read any more", "set NCCL_NET_GDR_LEVEL", False),
    ("NCCL_ASYNC_ERROR_HANDLING=1", "not read any more", "set TORCH_NCCL_ASYNC_ERROR_HANDLING", False),
    ("NCCL_FASTRAK_NUM_FLOWS=2", "ignores it", "a plug-in may read it", False),
]


@pytest.mark.parametrize("line", RIGHT)
def test_what_nccl_takes_as_it_is_meant_is_right(line):
    assert nccl_words.judge(*line.split("=", 1)) is None


@pytest.mark.parametrize(("line", "what", "remedy", "certain"), WRONG)
def test_what_nccl_takes_otherwise_is_told_with_what_was_meant(line, what, remedy, certain):
    found = nccl_words.judge(*line.split("=", 1))

    assert found is not None
    assert (what in found.what, remedy in found.remedy, found.certain) == (True, True, certain), found


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("true", 0), ("4M", 4), ("0x10", 16), ("010", 8), ("08", 0), ("-1", -1), (" +2 ", 2)]
)
def test_a_number_is_read_as_strtoll_reads_it(text, number):
    assert nccl_words.reads(text) == number
