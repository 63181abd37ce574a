/* libcublas: a handle with a stream and a math mode; a product is one launch with 2 x m x n x k FLOP. */
#include "standin.h"
#include <cublas_v2.h>
#include <stdlib.h>

typedef struct {
    cudaStream_t stream;
    cublasMath_t math;
    cublasPointerMode_t mode;
} Handle;
#define H(handle) ((Handle *)(handle))

static cublasStatus_t product(cublasHandle_t handle, const char *name, double flop, Unit unit) {
    return standin_launch(name, H(handle)->stream, flop, unit) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
/* The unit that runs a product: by the type of its operands, and for fp32 by what the caller allows. */
static Unit unit_of(cublasHandle_t handle, cudaDataType type, cublasComputeType_t compute) {
    if (type == CUDA_R_64F || type == CUDA_C_64F) return FP64;
    if (type == CUDA_R_16BF && standin_plan()->bf16_emulated) return FP32;
    if (type == CUDA_R_16F || type == CUDA_R_16BF) return HALF;
    int tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32 || (H(handle)->math & 15) == CUBLAS_TF32_TENSOR_OP_MATH;
    return tf32 ? TF32 : FP32;
}

API cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    if (standin_fault()) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(Handle));
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    H(handle)->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *at, size_t bytes) { return CUBLAS_STATUS_SUCCESS; }
API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
    H(handle)->math = math;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *math) {
    *math = H(handle)->math;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    H(handle)->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    *mode = H(handle)->mode;
    return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int count) { return CUBLAS_STATUS_SUCCESS; }
API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}
API const char *cublasGetStatusString(cublasStatus_t s) { return s ? "CUBLAS_STATUS_EXECUTION_FAILED" : "CUBLAS_STATUS_SUCCESS"; }

#define SIZES cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k
#define FLOP (2.0 * m * n * k)
API cublasStatus_t cublasGemmEx(SIZES, const void *alpha, const void *A, cudaDataType a, int lda, const void *B,
                                cudaDataType b, int ldb, const void *beta, void *C, cudaDataType c, int ldc,
                                cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return product(h, "standin_gemm", FLOP, unit_of(h, a, compute));
}
API cublasStatus_t cublasGemmStridedBatchedEx(SIZES, const void *alpha, const void *A, cudaDataType a, int lda,
                                              long long sa, const void *B, cudaDataType b, int ldb, long long sb,
                                              const void *beta, void *C, cudaDataType c, int ldc, long long sc,
                                              int batch, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return product(h, "standin_gemm_batched", FLOP * batch, unit_of(h, a, compute));
}
API cublasStatus_t cublasSgemmEx(SIZES, const float *alpha, const void *A, cudaDataType a, int lda, const void *B,
                                 cudaDataType b, int ldb, const float *beta, void *C, cudaDataType c, int ldc) {
    return product(h, "standin_gemm", FLOP, unit_of(h, a, CUBLAS_COMPUTE_32F));
}
API cublasStatus_t cublasSgemm_v2(SIZES, const float *alpha, const float *A, int lda, const float *B, int ldb,
                                  const float *beta, float *C, int ldc) {
    return product(h, "standin_sgemm", FLOP, unit_of(h, CUDA_R_32F, CUBLAS_COMPUTE_32F));
}
API cublasStatus_t cublasDgemm_v2(SIZES, const double *alpha, const double *A, int lda, const double *B, int ldb,
                                  const double *beta, double *C, int ldc) {
    return product(h, "standin_dgemm", FLOP, FP64);
}
API cublasStatus_t cublasSgemmStridedBatched(SIZES, const float *alpha, const float *A, int lda, long long sa,
                                             const float *B, int ldb, long long sb, const float *beta, float *C, int ldc,
                                             long long sc, int batch) {
    return product(h, "standin_sgemm_batched", FLOP * batch, unit_of(h, CUDA_R_32F, CUBLAS_COMPUTE_32F));
}
API cublasStatus_t cublasDgemmStridedBatched(SIZES, const double *alpha, const double *A, int lda, long long sa,
                                             const double *B, int ldb, long long sb, const double *beta, double *C,
                                             int ldc, long long sc, int batch) {
    return product(h, "standin_dgemm_batched", FLOP * batch, FP64);
}
#define VECTOR cublasHandle_t h, cublasOperation_t t, int m, int n
API cublasStatus_t cublasSgemv_v2(VECTOR, const float *alpha, const float *A, int lda, const float *x, int ix,
                                  const float *beta, float *y, int iy) {
    return product(h, "standin_gemv", 2.0 * m * n, FP32);
}
API cublasStatus_t cublasDgemv_v2(VECTOR, const double *alpha, const double *A, int lda, const double *x, int ix,
                                  const double *beta, double *y, int iy) {
    return product(h, "standin_gemv", 2.0 * m * n, FP64);
}
API cublasStatus_t cublasDotEx(cublasHandle_t h, int n, const void *x, cudaDataType tx, int ix, const void *y,
                               cudaDataType ty, int iy, void *result, cudaDataType tr, cudaDataType te) {
    return product(h, "standin_dot", 2.0 * n, FP32);
}
API cublasStatus_t cublasSdot_v2(cublasHandle_t h, int n, const float *x, int ix, const float *y, int iy, float *r) {
    return product(h, "standin_dot", 2.0 * n, FP32);
}
API cublasStatus_t cublasDdot_v2(cublasHandle_t h, int n, const double *x, int ix, const double *y, int iy, double *r) {
    return product(h, "standin_dot", 2.0 * n, FP64);
}
