/* libcudart: kernels by name, and what can be known of a launch from its arguments.

   A program's kernels register themselves when it is loaded: the address that the host calls, and the mangled name. Two
   things follow from a name. Kernels that fill memory with one value are done (torch initialises with them). Depthwise
   convolutions of torch's own (not cuDNN's) have their FLOP in their arguments. All others only take time. */
#include "work.h"
#include <stdlib.h>
#include <string.h>

typedef struct Kernel {
    const void *host;
    const char *name;
    struct Kernel *next;
} Kernel;
#define BUCKETS 65536
static Kernel *table[BUCKETS];
static unsigned bucket(const void *host) { return ((unsigned)((uintptr_t)host >> 4) * 2654435761u) >> 16 & (BUCKETS - 1); }
static const char *name_of(const void *host) {
    for (Kernel *k = table[bucket(host)]; k; k = k->next)
        if (k->host == host) return k->name;
    return "unknown";
}

API void **__cudaRegisterFatBinary(void *binary) {
    static void *handle[1];
    return handle;
}
API void __cudaRegisterFatBinaryEnd(void **handle) {}
API void __cudaUnregisterFatBinary(void **handle) {}
API char __cudaInitModule(void **handle) { return 1; }
API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, uint3 *a,
                                uint3 *b, dim3 *c, dim3 *d, int *size) {
    Kernel *kernel = malloc(sizeof *kernel);
    pthread_mutex_lock(&standin_mutex);
    *kernel = (Kernel){host, name, table[bucket(host)]};
    table[bucket(host)] = kernel;
    pthread_mutex_unlock(&standin_mutex);
}

/* ---- variables of the device ---- */
typedef struct {
    const void *host;
    size_t bytes;
    void *device; /* allocated when somebody asks for it */
} Variable;
static Variable *variables;
static int n_variables;
API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes,
                           int constant, int global) {
    variables = realloc(variables, sizeof(Variable) * (size_t)(n_variables + 1));
    variables[n_variables++] = (Variable){host, bytes ? bytes : 8, NULL};
}
API void __cudaRegisterManagedVar(void **h, void **host, char *d, const char *name, int e, size_t n, int c, int g) {}
API cudaError_t cudaGetSymbolAddress(void **at, const void *symbol) {
    for (int i = 0; i < n_variables; i++) {
        if (variables[i].host != symbol) continue;
        cudaError_t error = variables[i].device ? cudaSuccess : device_memory(&variables[i].device, variables[i].bytes);
        *at = variables[i].device;
        return error;
    }
    return failed(cudaErrorSymbolNotFound);
}
API cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind k) {
    void *at;
    cudaError_t error = cudaGetSymbolAddress(&at, symbol);
    return error ? error : cudaMemcpy((char *)at + offset, from, bytes, cudaMemcpyHostToDevice);
}

/* ---- what arguments say ---- */
#define INT(i) (*(const int *)arguments[i])
static int width_of(const char *type) { /* of a mangled type */
    if (!strncmp(type, "N3c104HalfE", 11) || !strncmp(type, "N3c108BFloat16E", 15)) return 2;
    switch (*type) {
    case 'd': case 'l': case 'm': return 8;
    case 'f': case 'i': case 'j': return 4;
    case 's': case 't': return 2;
    case 'a': case 'b': case 'h': return 1;
    default: return 0;
    }
}
/* vectorized_elementwise_kernel<4, FillFunctor<T>, array<char *, 1>>(int n, FillFunctor<T> value, array<char *, 1>) */
static void fill(const char *name, void **arguments) {
    const char *functor = strstr(name, "FillFunctorI");
    if (!functor || !arguments || !strstr(name, "vectorized_elementwise_kernelI")) return;
    int width = width_of(functor + strlen("FillFunctorI")), n = INT(0);
    char *to = *(char **)arguments[2];
    size_t bytes = (size_t)n * (size_t)width;
    static const char zero[8];
    if (!width || n <= 0 || !within_allocation(to, bytes)) return;
    if (!memcmp(arguments[1], zero, (size_t)width)) memset(to, 0, bytes);
    else
        for (int i = 0; i < n; i++) memcpy(to + (size_t)i * (size_t)width, arguments[1], (size_t)width);
}
/* Bytes of an elementwise kernel over contiguous arrays: n x number of arrays x width of the functor's first type. */
static double elementwise_bytes(const char *name, void **arguments) {
    const char *arrays = strstr(name, "St5arrayIPcLm");
    if (!arguments || !arrays || !strstr(name, "vectorized_elementwise_kernelI")) return 0;
    const char *type = strstr(name, "CUDAFunctor"), *more = type ? strchr(type, 'I') : NULL;
    int width = more ? width_of(more + 1) : 4;
    return (double)INT(0) * atoi(arrays + strlen("St5arrayIPcLm")) * width;
}
/* Depthwise convolutions of at::native, whose sizes are ints after their tensors; 2 x outputs x kernel.
   forward(input, output, weight, bias, has_bias, total, out_channels, multiplier, in_w, in_h, out_w, out_h, k_w, k_h, ..)
   backward(grad_output, grad_input, weight, total, in_channels, multiplier, out_channels, in_w, in_h, out_w, out_h, k_w, k_h, ..)
   grad_weight(grad_output, input, grad_weight, batch, in_channels, kernel_channels, multiplier, in_w, in_h, out_w, out_h, k_w, k_h, ..) */
static double depthwise_flop(const char *name, void **arguments) {
    if (!arguments || !strstr(name, "conv_depthwise2d")) return 0;
    if (strstr(name, "conv_depthwise2d_forward_kernel")) return 2.0 * INT(5) * INT(12) * INT(13);
    if (strstr(name, "conv_depthwise2d_backward_kernel")) {
        double batch = (double)INT(3) / ((double)INT(4) * INT(7) * INT(8));
        return 2.0 * batch * INT(6) * INT(9) * INT(10) * INT(11) * INT(12);
    }
    if (strstr(name, "conv_depthwise2d_grad_weight_kernel"))
        return 2.0 * INT(3) * INT(5) * INT(9) * INT(10) * INT(11) * INT(12);
    return 0;
}
/* spin_kernel(long cycles) of torch.cuda._sleep: the one kernel whose duration the caller says. */
static double spin_ns(const char *name, void **arguments) {
    if (!arguments || !strstr(name, "spin_kernel")) return 0;
    return (double)*(const int64_t *)arguments[0] * 1e3 / standin_plan()->sm_mhz;
}
static Unit unit_of(const char *name) {
    return strstr(name, "N3c104HalfE") || strstr(name, "N3c108BFloat16E") ? HALF : FP32;
}

static cudaError_t launch_named(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                                cudaStream_t stream, const char *call) {
    size_t threads = (size_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || !threads || threads > 1024) return failed(cudaErrorInvalidConfiguration);
    const char *name = name_of(host);
    if (!stream_of(stream)->capture && !standin_fault()) fill(name, arguments);
    Work work = {.kind = KERNEL, .name = name, .grid = {grid.x, grid.y, grid.z}, .block = {block.x, block.y, block.z}};
    work.shared_bytes = (int)shared;
    work.flop = depthwise_flop(name, arguments);
    work.unit = unit_of(name);
    work.bytes = elementwise_bytes(name, arguments);
    work.asked_ns = spin_ns(name, arguments);
    return launch(stream_of(stream), work, call);
}
API cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t s) {
    return launch_named(host, grid, block, arguments, shared, s, "cudaLaunchKernel");
}
API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 g, dim3 b, void **arguments, size_t shared, cudaStream_t s) {
    return launch_named(kernel, g, b, arguments, shared, s, "cudaLaunchKernel");
}
API cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 g, dim3 b, void **arguments, size_t shared, cudaStream_t s) {
    return launch_named(host, g, b, arguments, shared, s, "cudaLaunchCooperativeKernel");
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *host, void **arguments) {
    return launch_named(host, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream, "cudaLaunchKernelExC");
}

/* ---- the <<<...>>> of compiled code: pushed by the caller, popped by the kernel's stub ---- */
#define DEPTH 8
static __thread struct { dim3 grid, block; size_t shared; void *stream; } pushed[DEPTH];
static __thread int depth;
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (depth == DEPTH) return 1;
    pushed[depth].grid = grid;
    pushed[depth].block = block;
    pushed[depth].shared = shared;
    pushed[depth++].stream = stream;
    return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return cudaErrorInvalidValue;
    depth--;
    *grid = pushed[depth].grid;
    *block = pushed[depth].block;
    *shared = pushed[depth].shared;
    *(void **)stream = pushed[depth].stream;
    return cudaSuccess;
}

/* ---- attributes: plausible ones, from which launch shapes follow ---- */
API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *host) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = (int)standin_plan()->compute_capability;
    a->maxDynamicSharedSizeBytes = 49152;
    return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute a, int value) { return cudaSuccess; }
API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute a, int value, int device) {
    return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads,
                                                                       size_t shared, unsigned flags) {
    int fit = threads > 0 ? 2048 / threads : 1;
    *blocks = fit < 1 ? 1 : fit > 32 ? 32 : fit;
    return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
