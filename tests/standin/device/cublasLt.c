/* libcublasLt: descriptors that remember types and sizes; one algorithm for everything; a product is one launch. */
#include "standin.h"
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

/* Torch keeps descriptors of the public types' sizes; ours lie at their beginning. */
typedef struct {
    cudaDataType type;
    uint64_t rows, columns;
    int batch;
} Layout;
typedef struct {
    cublasComputeType_t compute;
    int transpose_a;
} Product;

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = calloc(1, 64);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
API size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale) {
    Product *product = calloc(1, sizeof(cublasLtMatmulDescOpaque_t));
    product->compute = compute;
    *made = (cublasLtMatmulDesc_t)product;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    free(product);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                                                  const void *value, size_t bytes) {
    if (name == CUBLASLT_MATMUL_DESC_TRANSA) ((Product *)product)->transpose_a = *(const int *)value != CUBLAS_OP_N;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                              uint64_t columns, int64_t leading) {
    Layout *layout = calloc(1, sizeof(cublasLtMatrixLayoutOpaque_t));
    *layout = (Layout){type, rows, columns, 1};
    *made = (cublasLtMatrixLayout_t)layout;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name,
                                                    const void *value, size_t bytes) {
    if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) ((Layout *)layout)->batch = *(const int *)value;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    *made = calloc(1, sizeof(cublasLtMatmulPreferenceOpaque_t));
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a,
                                                        const void *value, size_t bytes) {
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t A,
                                                  cublasLtMatrixLayout_t B, cublasLtMatrixLayout_t C,
                                                  cublasLtMatrixLayout_t D, cublasLtMatmulPreference_t p, int wanted,
                                                  cublasLtMatmulHeuristicResult_t results[], int *found) {
    memset(results, 0, sizeof *results);
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}
static Unit unit_of(cudaDataType type, cublasComputeType_t compute) {
    if (type == CUDA_R_64F) return FP64;
    if (type == CUDA_R_16BF && standin_plan()->bf16_emulated) return FP32;
    if (type == CUDA_R_16F || type == CUDA_R_16BF) return HALF;
    return compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? TF32 : FP32;
}
API cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *A,
                                  cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
                                  const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t o,
                                  const cublasLtMatmulAlgo_t *algorithm, void *work, size_t bytes, cudaStream_t stream) {
    Layout *left = (Layout *)a, *out = (Layout *)o;
    Product *product = (Product *)d;
    double depth = (double)(product->transpose_a ? left->rows : left->columns);
    double flop = 2.0 * (double)out->rows * (double)out->columns * depth * out->batch;
    int error = standin_launch("standin_gemm_lt", stream, flop, unit_of(left->type, product->compute));
    return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
