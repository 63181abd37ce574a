/* libcuda: the few calls of the driver that torch makes itself, and what Triton needs to load and launch a kernel.
   Modules are taken and not read: a launch is counted under the function's name. Types are cuda.h's. */
#define _GNU_SOURCE
#include "standin.h"
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT ((CUcontext)0x1)
API CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int *version) {
    *version = (int)standin_plan()->driver_cuda;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *count) {
    *count = (int)standin_plan()->devices;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device); /* the same numbers */
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (flags) *flags = 0;
    *active = standin_state()->contexts > 0;
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = CONTEXT;
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = CONTEXT;
    return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context) { return CUDA_SUCCESS; }
API CUresult cuCtxGetDevice(CUdevice *device) { return (CUresult)cudaGetDevice(device); }
API CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult error, const char **text) {
    *text = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}
API CUresult cuPointerGetAttribute(void *into, CUpointer_attribute attribute, CUdeviceptr at) {
    struct cudaPointerAttributes known;
    cudaPointerGetAttributes(&known, (void *)at);
    if (known.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)into = known.device; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(CUdeviceptr *)into = at; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(int *)into = known.type == cudaMemoryTypeDevice ? 2 : 1; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* ---- modules ---- */
API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    *module = malloc(8);
    return CUDA_SUCCESS;
}
API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values) {
    return cuModuleLoadData(module, image);
}
API CUresult cuModuleLoad(CUmodule *module, const char *path) { return cuModuleLoadData(module, NULL); }
API CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)strdup(name);
    return CUDA_SUCCESS;
}
API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    int threads = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, registers = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS;
    *value = threads ? 1024 : registers ? 32 : 0;
    return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return CUDA_SUCCESS; }
API CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }
API CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
    *clusters = 1;
    return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, CUstream stream, void **arguments, void **extra) {
    return (CUresult)standin_launch((const char *)function, stream, 0, FP32);
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
    return (CUresult)standin_launch((const char *)function, config->hStream, 0, FP32);
}
API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    char second[128];
    snprintf(second, sizeof second, "%s_v2", name);
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *function = dlsym(self, name);
    if (!*function) *function = dlsym(self, second);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
