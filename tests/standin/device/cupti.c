/* libcupti: the activity interface as Kineto uses it: calls, kernels, copies, memsets and external correlations, into
   buffers that the caller gives. Times are converted to the caller's clock, which may tick in a unit of its own. */
#define _GNU_SOURCE
#include "standin.h"
#include <cupti.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KINDS 256
static int enabled[KINDS];
static CUpti_BuffersCallbackRequestFunc request_buffer;
static CUpti_BuffersCallbackCompleteFunc give_buffer;
static CUpti_TimestampCallbackFunc caller_clock;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- time: caller's ticks for a moment of CLOCK_MONOTONIC, by the rate seen since the clock was registered ---- */
static double first_ns;
static uint64_t first_ticks;
static uint64_t ticks_now(void) {
    if (caller_clock) return caller_clock();
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
static void start_clock(void) {
    first_ns = standin_now();
    first_ticks = ticks_now();
}
static double ticks_per_ns(void) {
    while (standin_now() - first_ns < 2e7) usleep(1000); /* long enough to know the rate */
    double now = standin_now();
    return (double)(ticks_now() - first_ticks) / (now - first_ns);
}
static uint64_t ticks_at(double ns) {
    double rate = ticks_per_ns(), now = standin_now();
    return ticks_now() + (uint64_t)(int64_t)((ns - now) * rate);
}

/* ---- buffers: records one after another, each after its size ---- */
static uint8_t *buffer;
static size_t room, filled;
static void hand_over(void) {
    if (!buffer) return;
    uint8_t *full = buffer;
    buffer = NULL;
    give_buffer(NULL, 0, full, room, filled);
}
static void add(const void *record, size_t bytes) {
    size_t whole = sizeof(uint64_t) + ((bytes + 7) & ~(size_t)7), most = 0;
    if (!request_buffer) return;
    if (buffer && filled + whole > room) hand_over();
    if (!buffer) {
        request_buffer(&buffer, &room, &most);
        filled = 0;
    }
    if (!buffer) return;
    *(uint64_t *)(buffer + filled) = whole;
    memcpy(buffer + filled + sizeof(uint64_t), record, bytes);
    filled += whole;
}
API CUptiResult cuptiActivityGetNextRecord(uint8_t *from, size_t bytes, CUpti_Activity **record) {
    size_t next = 0;
    if (*record) {
        uint8_t *last = (uint8_t *)*record - sizeof(uint64_t);
        next = (size_t)(last - from) + *(uint64_t *)last;
    }
    if (next >= bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(from + next + sizeof(uint64_t));
    return CUPTI_SUCCESS;
}

/* ---- external correlations: which operator of the caller's a launch belongs to ---- */
#define EXTERNAL_KINDS 8
#define DEPTH 64
static __thread struct { uint64_t id[DEPTH]; int count; } pushed[EXTERNAL_KINDS];
API CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    if (kind < EXTERNAL_KINDS && pushed[kind].count < DEPTH) pushed[kind].id[pushed[kind].count++] = id;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *id) {
    if (kind >= EXTERNAL_KINDS || !pushed[kind].count) return CUPTI_ERROR_QUEUE_EMPTY;
    uint64_t last = pushed[kind].id[--pushed[kind].count];
    if (id) *id = last;
    return CUPTI_SUCCESS;
}
static void add_external(uint32_t correlation) {
    for (int kind = 0; kind < EXTERNAL_KINDS; kind++) {
        if (!pushed[kind].count) continue;
        CUpti_ActivityExternalCorrelation record;
        memset(&record, 0, sizeof record);
        record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
        record.externalKind = kind;
        record.externalId = pushed[kind].id[pushed[kind].count - 1];
        record.correlationId = correlation;
        add(&record, sizeof record);
    }
}

/* ---- records; KERNEL_RECORD and its kin are the newest of the headers at hand (see standin.py) ---- */
#define COMMON(record, which)                      \
    memset(&record, 0, sizeof record);             \
    record.kind = which;                           \
    record.start = start;                          \
    record.end = end;                              \
    record.deviceId = (uint32_t)work->device;      \
    record.contextId = 1;                          \
    record.streamId = work->stream;                \
    record.correlationId = work->correlation
static void add_kernel(const Work *work, uint64_t start, uint64_t end) {
    KERNEL_RECORD record;
    COMMON(record, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    record.completed = end;
    record.gridX = (int32_t)work->grid[0];
    record.gridY = (int32_t)work->grid[1];
    record.gridZ = (int32_t)work->grid[2];
    record.blockX = (int32_t)work->block[0];
    record.blockY = (int32_t)work->block[1];
    record.blockZ = (int32_t)work->block[2];
    record.dynamicSharedMemory = work->shared_bytes;
    record.registersPerThread = 32;
    record.name = work->name;
    record.graphId = work->graph;
    record.gridId = work->correlation;
    for (int i = 0; i <= (int)standin_plan()->cupti_twice; i++) add(&record, sizeof record);
}
static void add_copy(const Work *work, uint64_t start, uint64_t end) {
    int up = work->copy_kind == cudaMemcpyHostToDevice, down = work->copy_kind == cudaMemcpyDeviceToHost;
    MEMCPY_RECORD record;
    COMMON(record, CUPTI_ACTIVITY_KIND_MEMCPY);
    record.bytes = (uint64_t)work->bytes;
    record.copyKind = up ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD : down ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    record.srcKind = up ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    record.dstKind = down ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    record.graphId = work->graph;
    add(&record, sizeof record);
}
static void add_set(const Work *work, uint64_t start, uint64_t end) {
    MEMSET_RECORD record;
    COMMON(record, CUPTI_ACTIVITY_KIND_MEMSET);
    record.bytes = (uint64_t)work->bytes;
    record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    add(&record, sizeof record);
}
static void on_work(const Work *work) {
    pthread_mutex_lock(&mutex);
    uint64_t start = ticks_at(work->start), end = start + (uint64_t)((work->end - work->start) * ticks_per_ns());
    if (!work->graph) add_external(work->correlation); /* before the record that it is for: Kineto of torch 2.11 needs it */
    int kernels = enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] || enabled[CUPTI_ACTIVITY_KIND_KERNEL];
    if (work->kind == KERNEL && kernels) add_kernel(work, start, end);
    if (work->kind == COPY && enabled[CUPTI_ACTIVITY_KIND_MEMCPY]) add_copy(work, start, end);
    if (work->kind == SET && enabled[CUPTI_ACTIVITY_KIND_MEMSET]) add_set(work, start, end);
    pthread_mutex_unlock(&mutex);
}

static const struct { const char *name; int id; const char *full; } CALLS[] = {
    {"cudaLaunchKernel", CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel_v7000"},
    {"cudaLaunchKernelExC", CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, "cudaLaunchKernelExC_v11060"},
    {"cudaLaunchCooperativeKernel", CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000, "cudaLaunchCooperativeKernel_v9000"},
    {"cudaMemcpy", CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020, "cudaMemcpy_v3020"},
    {"cudaMemcpyAsync", CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync_v3020"},
    {"cudaMemsetAsync", CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync_v3020"},
    {"cudaStreamSynchronize", CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, "cudaStreamSynchronize_v3020"},
    {"cudaDeviceSynchronize", CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020, "cudaDeviceSynchronize_v3020"},
    {"cudaGraphLaunch", CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, "cudaGraphLaunch_v10000"},
};
#define N_CALLS (sizeof CALLS / sizeof *CALLS)
static void on_call(const char *name, uint32_t correlation, double start, double end) {
    int id = 0;
    for (size_t i = 0; i < N_CALLS; i++)
        if (!strcmp(CALLS[i].name, name)) id = CALLS[i].id;
    if (!id || !enabled[CUPTI_ACTIVITY_KIND_RUNTIME]) return;
    pthread_mutex_lock(&mutex);
    CUpti_ActivityAPI record;
    memset(&record, 0, sizeof record);
    record.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    record.cbid = (CUpti_CallbackId)id;
    record.start = ticks_at(start);
    record.end = ticks_at(end);
    record.processId = (uint32_t)getpid();
    record.threadId = (uint32_t)pthread_self();
    record.correlationId = correlation;
    add(&record, sizeof record);
    pthread_mutex_unlock(&mutex);
}
API CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **name) {
    *name = "unknown";
    for (size_t i = 0; i < N_CALLS; i++)
        if (CALLS[i].id == (int)id) *name = CALLS[i].full;
    return CUPTI_SUCCESS;
}

/* ---- switching on and off ---- */
static void listen(void) {
    int any = 0;
    for (int i = 0; i < KINDS; i++) any |= enabled[i];
    standin_on_work = any ? on_work : NULL;
    standin_on_call = any ? on_call : NULL;
}
API CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (!standin_plan()->cupti) return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    enabled[kind & (KINDS - 1)] = 1;
    listen();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    enabled[kind & (KINDS - 1)] = 0;
    listen();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc done) {
    request_buffer = request;
    give_buffer = done;
    start_clock();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    caller_clock = clock;
    start_clock();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityFlushAll(uint32_t flags) {
    pthread_mutex_lock(&mutex);
    hand_over();
    pthread_mutex_unlock(&mutex);
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    *dropped = 0;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetTimestamp(uint64_t *ticks) {
    *ticks = ticks_now();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    int refused = result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    *text = refused ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : result ? "CUPTI_ERROR_NOT_SUPPORTED" : "CUPTI_SUCCESS";
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *made, CUpti_CallbackFunc callback, void *data) {
    *made = (CUpti_SubscriberHandle)1;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) { return CUPTI_SUCCESS; }
API CUptiResult cuptiFinalize(void) { return CUPTI_SUCCESS; }
API CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute a, size_t *bytes, void *value) { return CUPTI_SUCCESS; }
API CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId call, uint8_t enable) { return CUPTI_SUCCESS; }
API CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId call, uint8_t enable) { return CUPTI_SUCCESS; }
API CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) { return CUPTI_SUCCESS; }
API CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle s, CUpti_CallbackDomain d, CUpti_CallbackId c) {
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle s, CUpti_CallbackDomain d) { return CUPTI_SUCCESS; }
API CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *device) {
    *device = 0;
    return CUPTI_SUCCESS;
}
