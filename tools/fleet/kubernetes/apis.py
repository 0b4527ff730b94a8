"""The kubelet's interfaces to plugins, as names and numbers of the public API."""
from fleet.kubernetes.messages import Api

# Device plugins. cdi_devices is known from Kubernetes 1.28 on; what came before it passes over it.
DEVICE_PLUGIN = Api("v1beta1", """
    Empty:
    DevicePluginOptions: pre_start_required=1:bool get_preferred_allocation_available=2:bool
    RegisterRequest: version=1 endpoint=2 resource_name=3 options=4:DevicePluginOptions
    ListAndWatchResponse: devices=1:Device*
    TopologyInfo: nodes=1:NUMANode*
    NUMANode: ID=1:int64
    Device: ID=1 health=2 topology=3:TopologyInfo
    PreStartContainerRequest: devices_ids=1*
    PreStartContainerResponse:
    PreferredAllocationRequest: container_requests=1:ContainerPreferredAllocationRequest*
    ContainerPreferredAllocationRequest: available_deviceIDs=1* must_include_deviceIDs=2* allocation_size=3:int64
    PreferredAllocationResponse: container_responses=1:ContainerPreferredAllocationResponse*
    ContainerPreferredAllocationResponse: deviceIDs=1*
    AllocateRequest: container_requests=1:ContainerAllocateRequest*
    ContainerAllocateRequest: devices_ids=1*
    CDIDevice: name=1
    AllocateResponse: container_responses=1:ContainerAllocateResponse*
    ContainerAllocateResponse: envs=1:map mounts=2:Mount* devices=3:DeviceSpec* annotations=4:map \
        cdi_devices=5:CDIDevice*
    Mount: container_path=1 host_path=2 read_only=3:bool
    DeviceSpec: container_path=1 host_path=2 permissions=3
    service Registration: Register(RegisterRequest) Empty
    service DevicePlugin: GetDevicePluginOptions(Empty) DevicePluginOptions, \
        ListAndWatch(Empty) stream ListAndWatchResponse, \
        GetPreferredAllocation(PreferredAllocationRequest) PreferredAllocationResponse, \
        Allocate(AllocateRequest) AllocateResponse, \
        PreStartContainer(PreStartContainerRequest) PreStartContainerResponse
""")

# What pods have, of which only the part that is read here: a kubelet's other fields are passed over. From 1.20 on.
POD_RESOURCES = Api("v1", """
    ListPodResourcesRequest:
    ListPodResourcesResponse: pod_resources=1:PodResources*
    PodResources: name=1 namespace=2 containers=3:ContainerResources*
    ContainerResources: name=1 devices=2:ContainerDevices*
    ContainerDevices: resource_name=1 device_ids=2*
    service PodResourcesLister: List(ListPodResourcesRequest) ListPodResourcesResponse
""")

REGISTRATION = Api("pluginregistration", """
    InfoRequest:
    PluginInfo: type=1 name=2 endpoint=3 supported_versions=4*
    RegistrationStatus: plugin_registered=1:bool error=2
    RegistrationStatusResponse:
    service Registration: GetInfo(InfoRequest) PluginInfo, \
        NotifyRegistrationStatus(RegistrationStatus) RegistrationStatusResponse
""")

DRA = Api("k8s.io.kubelet.pkg.apis.dra.v1", """
    Claim: namespace=1 uid=2 name=3
    Device: request_names=1* pool_name=2 device_name=3 cdi_device_ids=4* share_id=5?
    NodePrepareResourcesRequest: claims=1:Claim*
    NodePrepareResourcesResponse: claims=1:map/NodePrepareResourceResponse
    NodePrepareResourceResponse: devices=1:Device* error=2
    NodeUnprepareResourcesRequest: claims=1:Claim*
    NodeUnprepareResourcesResponse: claims=1:map/NodeUnprepareResourceResponse
    NodeUnprepareResourceResponse: error=1
    service DRAPlugin: NodePrepareResources(NodePrepareResourcesRequest) NodePrepareResourcesResponse, \
        NodeUnprepareResources(NodeUnprepareResourcesRequest) NodeUnprepareResourcesResponse
""")
