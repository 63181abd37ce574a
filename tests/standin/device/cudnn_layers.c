/* libcudnn: the older interface, as far as torch still calls it: normalisation, dropout and recurrent layers.

   A call is one launch of unknown FLOP. Recurrent layers also need the layout of their weights, which is answered as
   cuDNN documents it: matrices of all layers first, then biases. */
#include "standin.h"
#include <cudnn.h>
#include <stdlib.h>

typedef struct {
    int type, count, sizes[8];
} Sizes;
typedef struct {
    int mode, has_bias, directions, type;
    int64_t inputs, hidden, projected, layers;
} Recurrent;
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
DESCRIPTOR(Tensor) DESCRIPTOR(Filter) DESCRIPTOR(Convolution) DESCRIPTOR(Activation) DESCRIPTOR(Dropout)
DESCRIPTOR(RNN) DESCRIPTOR(RNNData) DESCRIPTOR(CTCLoss)

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
/* What is set and nobody asks for again. (...): C's old way to take any arguments, which these need not read. */
#define TAKEN(name) API cudnnStatus_t standin_##name() __asm__(#name); cudnnStatus_t standin_##name() { return OK; }
TAKEN(cudnnSetActivationDescriptor) TAKEN(cudnnSetDropoutDescriptor) TAKEN(cudnnRestoreDropoutDescriptor)
TAKEN(cudnnSetRNNDataDescriptor)

static cudnnStatus_t run(cudnnHandle_t handle, const char *name) {
    cudaStream_t stream;
    cudnnGetStream(handle, &stream);
    return standin_launch(name, stream, 0, FP32) ? CUDNN_STATUS_EXECUTION_FAILED : OK;
}
#define RUN(name) API cudnnStatus_t standin_##name(cudnnHandle_t h) __asm__(#name); \
    cudnnStatus_t standin_##name(cudnnHandle_t h) { return run(h, "standin_" #name); }
RUN(cudnnBatchNormalizationForwardTrainingEx) RUN(cudnnBatchNormalizationForwardInference)
RUN(cudnnBatchNormalizationBackwardEx) RUN(cudnnRNNForward) RUN(cudnnRNNBackwardData_v8) RUN(cudnnRNNBackwardWeights_v8)

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
API cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t h, size_t *bytes) {
    *bytes = BYTES;
    return OK;
}

/* ---- recurrent layers ---- */
API cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                                           cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
                                           cudnnRNNInputMode_t input, cudnnDataType_t type, cudnnDataType_t precision,
                                           cudnnMathType_t math, int32_t inputs, int32_t hidden, int32_t projected,
                                           int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    int directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
    *(Recurrent *)d = (Recurrent){mode, bias != CUDNN_RNN_NO_BIAS, directions, type, inputs, hidden, projected, layers};
    return OK;
}
static size_t width(int type) {
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
}
static int gates(const Recurrent *r) { return r->mode == CUDNN_LSTM ? 4 : r->mode == CUDNN_GRU ? 3 : 1; }
static int64_t outputs(const Recurrent *r) { return r->projected ? r->projected : r->hidden; }
static int64_t inputs(const Recurrent *r, int layer) {
    return layer / r->directions == 0 ? r->inputs : r->directions * outputs(r);
}
static int64_t matrix_elements(const Recurrent *r, int layer) {
    int64_t elements = gates(r) * r->hidden * (inputs(r, layer) + outputs(r));
    return r->projected && r->projected != r->hidden ? elements + r->projected * r->hidden : elements;
}
static int64_t matrices_before(const Recurrent *r, int layer) {
    int64_t elements = 0;
    for (int i = 0; i < layer; i++) elements += matrix_elements(r, i);
    return elements;
}
static int pseudo_layers(const Recurrent *r) { return (int)r->layers * r->directions; }
API cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t d, size_t *bytes) {
    const Recurrent *r = (const Recurrent *)d;
    int64_t biases = r->has_bias ? (int64_t)pseudo_layers(r) * 2 * gates(r) * r->hidden : 0;
    *bytes = (size_t)(matrices_before(r, pseudo_layers(r)) + biases) * width(r->type);
    return OK;
}
/* Matrix and bias `id` of a layer: ids 0 .. gates - 1 take the input, gates .. 2 gates - 1 the hidden state, then the
   projection. */
API cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t d, int32_t layer, size_t bytes,
                                          const void *weights, int32_t id, cudnnTensorDescriptor_t matrix, void **at_matrix,
                                          cudnnTensorDescriptor_t bias, void **at_bias) {
    const Recurrent *r = (const Recurrent *)d;
    int64_t n = gates(r), from_input = n * r->hidden * inputs(r, layer), before = matrices_before(r, layer);
    int64_t rows = id < 2 * n ? r->hidden : r->projected, columns = outputs(r);
    if (id < n) before += id * r->hidden * (columns = inputs(r, layer));
    else if (id < 2 * n) before += from_input + (id - n) * r->hidden * columns;
    else before += from_input + n * r->hidden * columns, columns = r->hidden;
    remember(matrix, r->type, 3, (int[]){1, (int)rows, (int)columns});
    if (bias) remember(bias, r->type, 3, (int[]){1, (int)r->hidden, 1});
    if (at_matrix) *at_matrix = (char *)weights + (size_t)before * width(r->type);
    int64_t biases = matrices_before(r, pseudo_layers(r)) + (int64_t)layer * 2 * n * r->hidden + id * r->hidden;
    if (at_bias) *at_bias = r->has_bias && id < 2 * n ? (char *)weights + (size_t)biases * width(r->type) : NULL;
    return OK;
}
API cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t d, cudnnForwardMode_t mode,
                                            cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve) {
    if (work) *work = 1 << 20;
    if (reserve) *reserve = 1 << 20;
    return OK;
}
