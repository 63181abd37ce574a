/* libcudart: streams, events, waiting, and the works that are really done: copies and memset. */
#include "work.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    double at; /* when it happens; not before `recorded` */
    unsigned flags;
    int recorded;
    Graph *capture;
    unsigned long long capture_id;
} Event;

#define FIRST_STREAM_ID 7
Stream default_streams[MAX_DEVICES], *streams;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void number_default_streams(void) {
    for (int d = MAX_DEVICES - 1; d >= 0; d--) {
        default_streams[d] = (Stream){.device = d, .id = FIRST_STREAM_ID, .next = streams};
        streams = &default_streams[d];
    }
}
Stream *stream_of(cudaStream_t stream) {
    pthread_once(&once, number_default_streams);
    int is_default = (uintptr_t)stream <= 2; /* 0, cudaStreamLegacy, cudaStreamPerThread */
    return is_default ? &default_streams[current_device] : (Stream *)stream;
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority) {
    static uint32_t ids = FIRST_STREAM_ID + 6;
    NEEDS_CONTEXT();
    stream_of(NULL);
    Stream *stream = calloc(1, sizeof *stream);
    *stream = (Stream){.flags = flags, .priority = priority, .device = current_device};
    pthread_mutex_lock(&standin_mutex);
    stream->id = ids++;
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&standin_mutex);
    *made = (cudaStream_t)stream;
    return cudaSuccess;
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned f) { return cudaStreamCreateWithPriority(made, f, 0); }
API cudaError_t cudaStreamCreate(cudaStream_t *made) { return cudaStreamCreateWithPriority(made, 0, 0); }
API cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cudaSuccess; } /* stays in the list: a few bytes */
API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = stream_of(stream)->priority;
    return cudaSuccess;
}
API cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    *flags = stream_of(stream)->flags;
    return cudaSuccess;
}
API cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    *id = stream_of(stream)->id;
    return cudaSuccess;
}
API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    *device = stream_of(stream)->device;
    return cudaSuccess;
}
/* Who asks again and again until it is done must see time pass: a question costs a call's time. */
static cudaError_t asked(double end) {
    NEEDS_CONTEXT();
    standin_call();
    return standin_host() >= end ? cudaSuccess : cudaErrorNotReady;
}
API cudaError_t cudaStreamQuery(cudaStream_t stream) { return asked(stream_of(stream)->end); }
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (stream_of(stream)->capture) return failed(cudaErrorStreamCaptureUnsupported);
    double called = standin_now();
    uint32_t correlation = next_correlation();
    standin_wait(stream_of(stream)->end);
    call_done("cudaStreamSynchronize", correlation, called);
    NEEDS_CONTEXT();
    return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize(void) {
    double called = standin_now();
    uint32_t correlation = next_correlation();
    for (Stream *stream = streams; stream; stream = stream->next) {
        if (stream->device != current_device) continue;
        if (stream->capture) return failed(cudaErrorStreamCaptureUnsupported);
        standin_wait(stream->end);
    }
    call_done("cudaDeviceSynchronize", correlation, called);
    NEEDS_CONTEXT();
    return cudaSuccess;
}

/* ---- events ---- */
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags) {
    NEEDS_CONTEXT();
    Event *event = calloc(1, sizeof *event);
    event->flags = flags;
    *made = (cudaEvent_t)event;
    return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t *made) { return cudaEventCreateWithFlags(made, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t which, cudaStream_t in, unsigned flags) {
    NEEDS_CONTEXT();
    Event *event = (Event *)which;
    Stream *stream = stream_of(in);
    event->capture = stream->capture;
    event->capture_id = stream->capture_id;
    event->recorded = !stream->capture;
    if (stream->capture) return cudaSuccess;
    standin_call();
    event->at = stream->end > standin_host() ? stream->end : standin_host();
    return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t in) { return cudaEventRecordWithFlags(event, in, 0); }
API cudaError_t cudaEventQuery(cudaEvent_t event) { return ((Event *)event)->recorded ? asked(((Event *)event)->at) : cudaSuccess; }
API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (((Event *)event)->recorded) standin_wait(((Event *)event)->at);
    NEEDS_CONTEXT();
    return cudaSuccess;
}
API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    NEEDS_CONTEXT();
    Event *start = (Event *)from, *end = (Event *)to;
    int timed = !((start->flags | end->flags) & cudaEventDisableTiming);
    if (!start->recorded || !end->recorded || !timed) return failed(cudaErrorInvalidResourceHandle);
    if (start->at > standin_host() || end->at > standin_host()) return cudaErrorNotReady;
    *ms = (float)(((end->at - start->at) * standin_plan()->time_scale + standin_plan()->event_offset_ns) / 1e6);
    return cudaSuccess;
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t waits, cudaEvent_t which, unsigned flags) {
    NEEDS_CONTEXT();
    Stream *stream = stream_of(waits);
    Event *event = (Event *)which;
    if (event->capture) { /* the stream joins the capture that the event was recorded in */
        stream->capture = event->capture;
        stream->capture_id = event->capture_id;
    } else if (event->recorded && stream->end < event->at) stream->end = event->at;
    return cudaSuccess;
}
API cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void *data, unsigned flags) {
    NEEDS_CONTEXT();
    call(stream, cudaSuccess, data);
    return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data) {
    NEEDS_CONTEXT();
    call(data);
    return cudaSuccess;
}

/* ---- copies ---- */
static enum cudaMemoryType type_of(const void *at) {
    struct cudaPointerAttributes a;
    cudaPointerGetAttributes(&a, at);
    return a.type;
}
static enum cudaMemcpyKind kind_of(const void *to, const void *from, enum cudaMemcpyKind kind) {
    if (kind != cudaMemcpyDefault) return kind;
    int to_device = type_of(to) == cudaMemoryTypeDevice, from_device = type_of(from) == cudaMemoryTypeDevice;
    return from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                       : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
}
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream,
                        int waits, const char *call) {
    Work work = {.kind = COPY, .name = "memcpy", .bytes = (double)bytes, .to = to, .from = from};
    work.copy_kind = kind_of(to, from, kind);
    cudaError_t error = launch(stream_of(stream), work, call);
    if (error || !waits) return error;
    standin_wait(stream_of(stream)->end);
    NEEDS_CONTEXT();
    return cudaSuccess;
}
API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy(to, from, bytes, kind, NULL, 1, "cudaMemcpy");
}
API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    int pageable = type_of(to) == cudaMemoryTypeUnregistered || type_of(from) == cudaMemoryTypeUnregistered;
    return copy(to, from, bytes, kind, stream, pageable && !stream_of(stream)->capture, "cudaMemcpyAsync");
}
API cudaError_t cudaMemcpyPeerAsync(void *to, int d, const void *from, int e, size_t bytes, cudaStream_t stream) {
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream, 0, "cudaMemcpyPeerAsync");
}
API cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    Work work = {.kind = SET, .name = "memset", .bytes = (double)bytes, .to = to, .value = value};
    return launch(stream_of(stream), work, "cudaMemsetAsync");
}
API cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, NULL); }
