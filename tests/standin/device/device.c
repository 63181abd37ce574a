/* libcudart: what the device is. Sizes that the plan does not name are those of an H100. */
#include "work.h"
#include <stdio.h>
#include <string.h>

__thread int current_device;

static int count(void) { return (int)standin_plan()->devices; }
static int major(void) { return (int)standin_plan()->compute_capability / 10; }
static int minor(void) { return (int)standin_plan()->compute_capability % 10; }
static int is_device(int device) { return device >= 0 && device < count(); }

API cudaError_t cudaGetDeviceCount(int *n) {
    *n = count();
    return *n ? cudaSuccess : failed(cudaErrorNoDevice);
}
API cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) {
    if (!is_device(device)) return failed(cudaErrorInvalidDevice);
    current_device = device;
    NEEDS_CONTEXT();
    return cudaSuccess;
}
API cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) { return cudaSetDevice(device); }
API cudaError_t cudaDriverGetVersion(int *version) {
    *version = (int)standin_plan()->driver_cuda;
    return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static void limits(struct cudaDeviceProp *p) {
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = 232448;
    p->sharedMemPerMultiprocessor = 233472;
    p->reservedSharedMemPerBlock = 1024;
    p->totalConstMem = 65536;
    p->memPitch = 2147483647;
    p->textureAlignment = 512;
    p->texturePitchAlignment = 32;
}
API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    if (!is_device(device)) return failed(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    limits(p);
    snprintf(p->name, sizeof p->name, "%s", standin_name());
    memcpy(p->uuid.bytes, "STAND-IN-DEVICE", 15);
    p->uuid.bytes[15] = (char)device;
    p->totalGlobalMem = (size_t)(standin_plan()->memory_mib * 1048576.0);
    p->multiProcessorCount = (int)standin_plan()->multiprocessors;
    p->major = major();
    p->minor = minor();
    p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 5120;
    p->asyncEngineCount = 3;
    p->pciBusID = 0x1a + device;
    p->ECCEnabled = p->unifiedAddressing = p->concurrentKernels = p->canMapHostMemory = p->managedMemory = 1;
    p->streamPrioritiesSupported = p->cooperativeLaunch = p->computePreemptionSupported = p->memoryPoolsSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = p->hostRegisterSupported = 1;
    p->clusterLaunch = major() >= 9;
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error) return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)p.reservedSharedMemPerBlock; break;
    case cudaDevAttrTotalConstantMemory: *value = (int)p.totalConstMem; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrClockRate: *value = (int)(standin_plan()->sm_mhz * 1000); break;
    case cudaDevAttrMemoryClockRate: *value = 2619000; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrClusterLaunch: *value = p.clusterLaunch; break;
    case cudaDevAttrCanMapHostMemory: case cudaDevAttrConcurrentKernels: case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrStreamPrioritiesSupported: case cudaDevAttrManagedMemory:
    case cudaDevAttrGlobalL1CacheSupported: case cudaDevAttrLocalL1CacheSupported:
    case cudaDevAttrComputePreemptionSupported: case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    default: *value = 0; /* a feature that it has not */
    }
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x1a + device);
    return cudaSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer;
    return cudaSuccess;
}
API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return cudaSuccess; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) {
    *value = 1024;
    return cudaSuccess;
}
API cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) { return cudaSuccess; }
API cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
API cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

/* The driver's functions by name: our libcuda's, where it has them. */
#include <dlfcn.h>
static int not_supported(void) { return cudaErrorNotSupported; }
API cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                                 unsigned long long flags, enum cudaDriverEntryPointQueryResult *found) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    char second[128];
    snprintf(second, sizeof second, "%s_v2", name);
    *function = driver ? dlsym(driver, name) : NULL;
    if (!*function && driver) *function = dlsym(driver, second);
    if (!*function) {
        standin_missing(name);
        *function = (void *)not_supported;
    }
    if (found) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
#undef cudaGetDriverEntryPoint
API cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                        enum cudaDriverEntryPointQueryResult *found) {
    return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, found);
}
