"""GPUs that are not there: what a stand-in for nvidia-smi tells, and memory that real processes hold.

The state is a folder, $FAKE_GPU_STATE; without one they fail as on a machine without a driver. In that folder:

gpus.json: {"preset": "rtx-pro-6000 x8",   a key of models.MODELS, and how many
            "failure": "no-driver",        a key of FAILURES ("fallen-off" takes "failed_gpu", an index), or "hang"
            "linger_seconds": 5,           memory of a dead holder stays so long after its death was first seen
                                           (null: for ever)
            "ghosts": [{"gpu": 0, "mib": 900, "pid": 4242, "name": "[Not Found]"}],
                                           held by nobody, or (with "pid") by one that this host does not have
            "apps": "hidden",              no process is ever listed, as in some containers
            "faults": {"2": ["ecc"], "*": ["mig"]},   keys of models.FAULTS; "*" is every GPU
            "fields": {"0": {"memory.used": "[N/A]"}},   what GPU 0 says to these fields of --query-gpu
            "elements": {"0": {"fabric/state": "In Progress"}},   and in these elements of -q -x
            "driver": "610.43.02", "cuda": "13.3", "no_links": true,
            "down": {"0": [3, 7]},         NVLinks of GPU 0 that are down
            "xids": {"2": [79]},           what the kernel's log has of GPU 2; a key of models.XIDS
            "nics": ["mlx5_0"],            network cards in the topology
            "fabric_manager": {"version": "570.172.08", "state": "active"}}   of nv-fabricmanager and systemctl
holders/PID.json: {"pid": 1, "start_ticks": 2, "name": "sglang::scheduler", "mib": {"0": 40000}}
            counted while that process, with these start ticks (field 22 of /proc/PID/stat), lives
"""
