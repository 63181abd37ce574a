/* libcudnn: the older interface, as far as torch still calls it and a test runs it: normalisation.

   A call is one launch of unknown FLOP. Recurrent layers and their dropout are not there: no test has one on the device,
   and a call that nobody wrote says so. */
#include "standin.h"
#include <cudnn.h>
#include <stdlib.h>

typedef struct {
    int type, count, sizes[8];
} Sizes;
#define DESCRIPTOR_BYTES 512
#define OK CUDNN_STATUS_SUCCESS

#define DESCRIPTOR(Name)                                                        \
    API cudnnStatus_t cudnnCreate##Name##Descriptor(cudnn##Name##Descriptor_t *made) { \
        *made = calloc(1, DESCRIPTOR_BYTES);                                    \
        return OK;                                                              \
    }                                                                           \
    API cudnnStatus_t cudnnDestroy##Name##Descriptor(cudnn##Name##Descriptor_t d) { \
        free(d);                                                                \
        return OK;                                                              \
    }
DESCRIPTOR(Tensor) DESCRIPTOR(Filter) DESCRIPTOR(Convolution) DESCRIPTOR(Activation)

static cudnnStatus_t remember(void *descriptor, int type, int count, const int sizes[]) {
    Sizes *known = descriptor;
    known->type = type;
    known->count = count;
    for (int i = 0; i < count && i < 8; i++) known->sizes[i] = sizes[i];
    return OK;
}
API cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t t, int n, const int a[], const int s[]) {
    return remember(d, t, n, a);
}
API cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t t, cudnnTensorFormat_t f, int n,
                                             const int a[]) {
    return remember(d, t, n, a);
}
API cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t d, int wanted, cudnnDataType_t *type, int *n,
                                             int sizes[], int strides[]) {
    const Sizes *known = (const Sizes *)d;
    *type = known->type;
    *n = known->count;
    for (int i = wanted - 1, stride = 1; i >= 0; stride *= sizes[i--]) {
        sizes[i] = i < known->count ? known->sizes[i] : 1;
        strides[i] = stride;
    }
    return OK;
}
API cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t d, int wanted, cudnnDataType_t *type,
                                             cudnnTensorFormat_t *format, int *n, int sizes[]) {
    const Sizes *known = (const Sizes *)d;
    *type = known->type;
    *format = CUDNN_TENSOR_NCHW;
    *n = known->count;
    for (int i = 0; i < wanted; i++) sizes[i] = i < known->count ? known->sizes[i] : 1;
    return OK;
}
/* What is set and nobody asks for again. (): C's old way to take any arguments, which these need not read. */
#define TAKEN(name) API cudnnStatus_t standin_##name() __asm__(#name); cudnnStatus_t standin_##name() { return OK; }
TAKEN(cudnnSetActivationDescriptor)

static cudnnStatus_t run(cudnnHandle_t handle, const char *name) {
    cudaStream_t stream;
    cudnnGetStream(handle, &stream);
    return standin_launch(name, stream, 0, FP32) ? CUDNN_STATUS_EXECUTION_FAILED : OK;
}
#define RUN(name) API cudnnStatus_t standin_##name(cudnnHandle_t h) __asm__(#name); \
    cudnnStatus_t standin_##name(cudnnHandle_t h) { return run(h, "standin_" #name); }
RUN(cudnnBatchNormalizationForwardTrainingEx) RUN(cudnnBatchNormalizationForwardInference)
RUN(cudnnBatchNormalizationBackwardEx)

#define BYTES 1024 /* of workspaces and reserved space; invented */
API cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t h, cudnnBatchNormMode_t m, cudnnBatchNormOps_t o, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t s,
    const cudnnActivationDescriptor_t a, size_t *bytes) {
    *bytes = BYTES;
    return OK;
}
API cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t h, cudnnBatchNormMode_t m, cudnnBatchNormOps_t o, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t ds, const cudnnActivationDescriptor_t a, size_t *bytes) {
    *bytes = BYTES;
    return OK;
}
API cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t h, cudnnBatchNormMode_t m, cudnnBatchNormOps_t o, const cudnnActivationDescriptor_t a,
    const cudnnTensorDescriptor_t x, size_t *bytes) {
    *bytes = (size_t)standin_plan()->batch_norm_reserve_bytes;
    return OK;
}
