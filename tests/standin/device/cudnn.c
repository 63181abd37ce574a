/* libcudnn: the backend (graph) interface, by which torch asks for convolutions.

   A descriptor is a list of attributes as they were set. Heuristics offer two engines for every graph, one on tensor
   units (tf32 for fp32 data), which says so in a numerical note, and one that does not, so that a caller who
   forbids tf32 finds what he wants. Executing a plan is one launch; its FLOP are those of the convolutions in its graph. */
#include "standin.h"
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    cudaStream_t stream;
} Handle;
typedef struct Attribute {
    int name, type;
    int64_t count;
    void *values;
    struct Attribute *next;
} Attribute;
typedef struct {
    int kind;
    Attribute *attributes;
} Descriptor;

static size_t width(int type) {
    switch (type) {
    case CUDNN_TYPE_HANDLE: case CUDNN_TYPE_VOID_PTR: case CUDNN_TYPE_INT64: case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: case CUDNN_TYPE_FRACTION: return 8;
    case CUDNN_TYPE_BOOLEAN: case CUDNN_TYPE_CHAR: return 1;
    default: return 4;
    }
}
static Attribute *get(const Descriptor *descriptor, int name) {
    if (!descriptor) return NULL;
    for (Attribute *a = descriptor->attributes; a; a = a->next)
        if (a->name == name) return a;
    return NULL;
}
static void set(Descriptor *descriptor, int name, int type, int64_t count, const void *values) {
    Attribute *a = get(descriptor, name);
    if (!a) {
        a = calloc(1, sizeof *a);
        a->next = descriptor->attributes;
        descriptor->attributes = a;
    }
    free(a->values);
    size_t bytes = width(type) * (size_t)count;
    *a = (Attribute){name, type, count, malloc(bytes ? bytes : 1), a->next};
    if (values) memcpy(a->values, values, bytes);
}
static Descriptor *child(const Descriptor *descriptor, int name) {
    Attribute *a = get(descriptor, name);
    return a && a->count ? *(Descriptor **)a->values : NULL;
}

API size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
API size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
API const char *cudnnGetErrorString(cudnnStatus_t status) {
    if (status == CUDNN_STATUS_NOT_SUPPORTED) return "CUDNN_STATUS_NOT_SUPPORTED";
    return status ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_SUCCESS";
}
API void cudnnGetLastErrorString(char *text, size_t bytes) { snprintf(text, bytes, "stand-in"); }
API cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    if (standin_fault()) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(Handle));
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    ((Handle *)handle)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    *stream = ((Handle *)handle)->stream;
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnGetProperty(libraryPropertyType which, int *value) {
    *value = which == MAJOR_VERSION ? CUDNN_MAJOR : which == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */
API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *made) {
    Descriptor *descriptor = calloc(1, sizeof *descriptor);
    descriptor->kind = kind;
    *made = descriptor;
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    return CUDNN_STATUS_SUCCESS; /* others may point to it; a few bytes are let go */
}
API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    set(descriptor, name, type, count, values);
    return CUDNN_STATUS_SUCCESS;
}

/* Two engine configurations for the graph of `heuristics`, written into descriptors that the caller made. */
static void offer_engines(Descriptor *heuristics, int64_t wanted, int64_t *found, Descriptor **into) {
    static const int note = CUDNN_NUMERICAL_NOTE_TENSOR_CORE; /* without leave for tf32, torch takes no such engine */
    if (found) *found = into && wanted < 2 ? wanted : 2;
    for (int64_t i = 0; into && i < 2 && i < wanted; i++) {
        Descriptor *engine = calloc(1, sizeof *engine), *graph = child(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        engine->kind = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
        set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
        set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &i);
        set(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, i == 0 ? 1 : 0, &note);
        set(into[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    }
}
static cudnnStatus_t answer(int64_t value, int64_t *found, void *into) {
    if (found) *found = 1;
    if (into) *(int64_t *)into = value;
    return CUDNN_STATUS_SUCCESS;
}
API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t wanted, int64_t *found, void *into) {
    Descriptor *descriptor = of;
    Attribute *known = get(descriptor, name);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        offer_engines(descriptor, wanted, found, into);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE: { /* into a descriptor that the caller made */
        Descriptor *engine = child(descriptor, name), *given = wanted && into ? *(Descriptor **)into : NULL;
        if (found) *found = 1;
        if (given && engine) given->attributes = engine->attributes;
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: return answer(2, found, into);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE: return answer((int64_t)standin_plan()->workspace_bytes, found, into);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    case CUDNN_ATTR_ENGINE_KNOB_INFO:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        if (found) *found = 0;
        return CUDNN_STATUS_SUCCESS;
    default: break;
    }
    if (found) *found = known ? known->count : 0;
    if (known && into) memcpy(into, known->values, width(known->type) * (size_t)(wanted < known->count ? wanted : known->count));
    return known ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

/* ---- execution ---- */
static const struct { int kind, output, filter; const char *name; } CONVOLUTIONS[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, "standin_fprop"},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, "standin_dgrad"},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, "standin_wgrad"},
};
static double product_from(Attribute *sizes, int64_t first) {
    double product = 1;
    for (int64_t i = first; sizes && i < sizes->count; i++) product *= (double)((int64_t *)sizes->values)[i];
    return product;
}
/* 2 x elements of the output x elements of the filter for one output channel. */
static double convolution_flop(const Descriptor *operation, const char **name, int *data_type) {
    for (size_t i = 0; i < sizeof CONVOLUTIONS / sizeof *CONVOLUTIONS; i++) {
        if (operation->kind != CONVOLUTIONS[i].kind) continue;
        Descriptor *output = child(operation, CONVOLUTIONS[i].output), *filter = child(operation, CONVOLUTIONS[i].filter);
        Attribute *type = get(output, CUDNN_ATTR_TENSOR_DATA_TYPE);
        if (type) *data_type = *(int *)type->values;
        *name = CONVOLUTIONS[i].name;
        return 2 * product_from(get(output, CUDNN_ATTR_TENSOR_DIMENSIONS), 0) *
               product_from(get(filter, CUDNN_ATTR_TENSOR_DIMENSIONS), 1);
    }
    return 0;
}
static Unit unit_of(int data_type, int on_tensor_units) {
    if (data_type == CUDNN_DATA_HALF) return HALF;
    if (data_type == CUDNN_DATA_BFLOAT16) return standin_plan()->bf16_emulated ? FP32 : HALF;
    return on_tensor_units ? TF32 : FP32;
}
/* A planned lie: the call succeeds, and nothing is launched. */
static int is_skipped(const char *name) {
    static uint64_t count;
    static int training;
    uint64_t one_of = (uint64_t)standin_plan()->convolution_skipped;
    training |= strstr(name, "wgrad") != NULL;
    return training && one_of && ++count % one_of == 0;
}
API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    Descriptor *engine = child(child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
    Attribute *operations = get(child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    Attribute *notes = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
    const char *name = "standin_cudnn_graph";
    double flop = 0;
    int data_type = CUDNN_DATA_FLOAT;
    for (int64_t i = 0; operations && i < operations->count; i++)
        flop += convolution_flop(((Descriptor **)operations->values)[i], &name, &data_type);
    if (is_skipped(name)) return CUDNN_STATUS_SUCCESS;
    Unit unit = unit_of(data_type, notes && notes->count);
    int error = standin_launch(name, ((Handle *)handle)->stream, flop, unit);
    return error ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
