"""Every name that pods, nodes and containers share with us: annotations, resources, labels, environment.

Only names, each said once; what they mean is in pod.py. No imports, no logic beyond joining a domain and a key.
"""

DOMAIN = "gemini.io"
KUBERNETES = "kubernetes.io"
KOORDINATOR = "koordinator.sh"
ALIYUN = "aliyun.com"
NVIDIA = "nvidia.com"
KUBESHARE = "sharedgpu"

# Annotations on a pod; `<key>.<container>` speaks of one container.
GPU_REQUEST = f"{DOMAIN}/gpu-request"
GPU_LIMIT = f"{DOMAIN}/gpu-limit"
GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_MEMORY_RATIO = f"{DOMAIN}/gpu-memory-ratio"
GPU_COUNT = f"{DOMAIN}/gpu-count"
GPU_MODEL = f"{DOMAIN}/gpu-model"
GPU_UUID = f"{DOMAIN}/gpu-uuid"
GPU_UUID_EXCLUDE = f"{DOMAIN}/gpu-uuid-exclude"
GPU_CLASS = f"{DOMAIN}/gpu-class"
GPU_TOPOLOGY = f"{DOMAIN}/gpu-topology"
GPU_POLICY = f"{DOMAIN}/gpu-policy"
POD_GROUP = f"{DOMAIN}/pod-group"
POD_GROUP_SIZE = f"{DOMAIN}/pod-group-size"
GROUP_REQUIRED = f"{DOMAIN}/pod-group-required-topology"
GROUP_PREFERRED = f"{DOMAIN}/pod-group-preferred-topology"
JOINT = f"{DOMAIN}/joint"
CPU_BIND = f"{DOMAIN}/cpu-bind"
GPUSHARE_UNIT = f"{DOMAIN}/gpushare-unit"  # of one aliyun.com/gpu-mem: MiB (default) or GiB

SHARE_KEYS = (GPU_REQUEST, GPU_LIMIT, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_COUNT)
CHOICE_KEYS = (GPU_MODEL, GPU_UUID, GPU_UUID_EXCLUDE, GPU_CLASS, GPU_TOPOLOGY, GPU_POLICY, JOINT)
GROUP_KEYS = (POD_GROUP, POD_GROUP_SIZE, GROUP_REQUIRED, GROUP_PREFERRED)
POD_KEYS = (*GROUP_KEYS, GPUSHARE_UNIT)

# Annotations that we write on a pod.
ALLOCATION = f"{DOMAIN}/allocation"
ASSUME_TIME = f"{DOMAIN}/assume-time"
ASSIGNED = f"{DOMAIN}/assigned"
EXCHANGE = f"{DOMAIN}/exchange"  # while two pods exchange their cards: the other pod's uid
WRITTEN_KEYS = (ALLOCATION, ASSUME_TIME, ASSIGNED, EXCHANGE)

ANNOTATION_KEYS = SHARE_KEYS + CHOICE_KEYS + POD_KEYS + (CPU_BIND,) + WRITTEN_KEYS

DEVICE_PLUGIN = "gemini-device-plugin"  # source of its events
NOT_ENFORCED = "ShareNotEnforced"  # reason of an event on a pod whose share nobody holds it to
PLACED_ENFORCED = "PlacedShareEnforced"  # the same of one that another scheduler placed, and that is held to its time

# gpushare's own annotations, written for pods that used its resource, and its environment.
ALIYUN_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
ALIYUN_POD = "ALIYUN_COM_GPU_MEM_POD"
ALIYUN_ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
ALIYUN_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ALIYUN_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
ALIYUN_DEVICE = "ALIYUN_COM_GPU_MEM_DEV"
# All annotations of a pod by which somebody is told what it was promised: they belong to who writes them.
RECORD_KEYS = (*WRITTEN_KEYS, ALIYUN_INDEX, ALIYUN_POD, ALIYUN_ASSUME_TIME, ALIYUN_ASSIGNED, ALIYUN_DEVICE)

# On nodes and on the Device custom resource.
NODE_LABEL = f"{DOMAIN}/gpu"  # by an operator's hand: "true", "gpushare" or "placed", which of our parts run there
NAMESPACE_LABEL = f"{DOMAIN}/spellings"  # "all": the spellings of other projects are read in that namespace
NAMESPACE_PLACED = f"{DOMAIN}/placed"  # "enforce": pods that another scheduler places there are held to their time
NODE_MODEL_LABEL = f"{DOMAIN}/gpu-model"
NODE_CORDON = f"{DOMAIN}/cordon"
DEVICES_CHECKPOINTS = f"{DOMAIN}/devices-checkpoints"
DEVICE_API_VERSION = f"{DOMAIN}/v1alpha1"
DEVICE_KIND = "Device"
DEVICE_DEFINITION = f"devices.{DOMAIN}"
RESIZE_KIND = "Resize"  # another share for a pod that runs; of the API version of Device
RESIZE_DEFINITION = f"resizes.{DOMAIN}"
KUEUE = "kueue.x-k8s.io/"  # begins labels and annotations of pods whose workload Kueue has counted

# Dynamic resource allocation: our driver, and the conditions of a claim's device by which the extender answers.
RESOURCE_API_VERSION = "resource.k8s.io/v1"
BY_CLASS = "deviceclass.resource.kubernetes.io/"  # begins an extended resource for which a claim is made
DRIVER = DOMAIN
ROOM = f"{DOMAIN}/room"  # annotation of the DeviceClass: when there was last room for somebody who waited
CLAIM_PROMISED = f"{DOMAIN}/promised"
CLAIM_REFUSED = f"{DOMAIN}/refused"

# The webhooks in their configurations.
MUTATE_HOOK = f"mutate.{DOMAIN}"
VALIDATE_HOOK = f"validate.{DOMAIN}"
MUTATE_OPTED_IN_HOOK = f"mutate-opted-in.{DOMAIN}"
VALIDATE_OPTED_IN_HOOK = f"validate-opted-in.{DOMAIN}"
PLACED_HOOK = f"placed.{DOMAIN}"
VALIDATE_PLACED_HOOK = f"validate-placed.{DOMAIN}"
JOBS_HOOK = f"jobs.{DOMAIN}"
JOBS_OPTED_IN_HOOK = f"jobs-opted-in.{DOMAIN}"
BINDINGS_HOOK = f"bindings.{DOMAIN}"

# Resources of our domain; the same keys under kubernetes.io and koordinator.sh are read as input.
RESOURCE_GPU = f"{DOMAIN}/gpu"
RESOURCE_CORE = f"{DOMAIN}/gpu-core"
RESOURCE_MEMORY = f"{DOMAIN}/gpu-memory"
RESOURCE_RATIO = f"{DOMAIN}/gpu-memory-ratio"
RESOURCE_PLACED = f"{DOMAIN}/placed"  # 1: another scheduler chose the container's card, and we enforce its time
ALIYUN_GPU_MEM = f"{ALIYUN}/gpu-mem"
ALIYUN_GPU_COUNT = f"{ALIYUN}/gpu-count"
NVIDIA_GPU = f"{NVIDIA}/gpu"
KOORDINATOR_SHARED = f"{KOORDINATOR}/gpu.shared"
# What NVIDIA's own device plugin serves, whole cards and time-sliced ones; a pod that still asks for one of these when
# it is bound came past the webhook, and its cards are that plugin's choice.
VENDOR_RESOURCES = frozenset({NVIDIA_GPU, f"{NVIDIA}/gpu.shared"})
DEVICE_TYPES = frozenset({"rdma", "fpga"})  # types besides "gpu" that are known without configuration

# KubeShare's labels on a pod.
SHARED_REQUEST = f"{KUBESHARE}/gpu_request"
SHARED_LIMIT = f"{KUBESHARE}/gpu_limit"
SHARED_MEMORY = f"{KUBESHARE}/gpu_mem"
SHARED_MODEL = f"{KUBESHARE}/gpu_model"
SHARED_PRIORITY = f"{KUBESHARE}/priority"
SHARED_GROUP = f"{KUBESHARE}/group_name"
SHARED_HEADCOUNT = f"{KUBESHARE}/group_headcount"
SHARED_THRESHOLD = f"{KUBESHARE}/group_threshold"
SHARED_SHARE_KEYS = (SHARED_REQUEST, SHARED_LIMIT, SHARED_MEMORY)

# Environment inside a tenant.
ENV_PRELOAD = "LD_PRELOAD"
ENV_SOCKET = "GEMINI_SOCKET"
ENV_MEMORY_LIMIT = "GEMINI_MEMORY_LIMIT"
ENV_MEMORY_FRACTION = "GEMINI_MEMORY_FRACTION"
ENV_REQUEST = "GEMINI_REQUEST"
ENV_LIMIT = "GEMINI_LIMIT"
ENV_ON_BACKEND_LOSS = "GEMINI_ON_BACKEND_LOSS"
ENV_LOG = "GEMINI_LOG"
ENV_LOG_FILE = "GEMINI_LOG_FILE"
ENV_SIM = "GEMINI_SIM"
ENV_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
ENV_PLACED = "GEMINI_PLACED"  # what admission read of KAI's annotations, which may change later, such as 50%,1

# KAI's: the label of pods that have parts of one card, and the namespaces of the pod that keeps that card for them.
KAI_GROUP = "runai-gpu-group"
KAI_RESERVATIONS = ("kai-resource-reservation", "runai-reservation")
# How the annotations begin in which HAMi's and Volcano's schedulers tell their device plugins what a pod is given.
PLACED_RECORDS = (
    "hami.io/vgpu-", "hami.io/bind-", "volcano.sh/vgpu-ids", "volcano.sh/vgpu-node", "volcano.sh/vgpu-time",
    "volcano.sh/devices-to-allocate", "volcano.sh/bind-",
)  # fmt: skip

# Environment by which HAMi's and Volcano's device plugins are told, and tell.
HAMI_CONTROL_OFF = "CUDA_DISABLE_CONTROL"  # of a container: their own library is not preloaded
HAMI_CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"  # of a container: "disable": cores are a promise, no limit
HAMI_MEMORY = "CUDA_DEVICE_MEMORY_LIMIT_"  # begins what their plugins say of each card's memory, such as 4096m

# Annotations of a container (not of its pod), in the device plugin's reply: what it was given.
CONTAINER_TENANT = f"{DOMAIN}/tenant"
CONTAINER_CARDS = f"{DOMAIN}/cards"

# Where a container finds the library and its daemon's socket; the device plugin mounts them there.
LIBRARY_PATH = "/usr/local/lib/gemini/libgemini_hook.so"
SIM_PATH = "/usr/local/lib/gemini/sim"
SOCKET_PATH = "/run/gemini/tenant.sock"
PRELOAD_FILE = "/etc/ld.so.preload"
CDI_KIND = f"{DOMAIN}/share"  # what a container asks its runtime for: gemini.io/share=NAME

# Levels of a cluster that a group's pods may be held to, by the label of the nodes that tells domains apart; "node" and
# "cluster" need none. Any other label may be named itself.
LEVEL_NODE, LEVEL_CLUSTER = "node", "cluster"
LEVEL_LABELS = {
    "nvlink": f"{NVIDIA}/gpu.clique",
    "rack": "topology.kubernetes.io/rack",
    "zone": "topology.kubernetes.io/zone",
}
LEVELS = (LEVEL_NODE, *LEVEL_LABELS, LEVEL_CLUSTER)

POLICY_CLASSES = ("latency", "batch")
SCOPES = ("pcie", "numa", "nvlink", "node")
