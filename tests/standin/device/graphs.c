/* libcudart: CUDA graphs. A captured graph is the list of its works, in order, on one stream. */
#include "work.h"
#include <stdlib.h>
#include <string.h>

API cudaError_t cudaStreamBeginCapture(cudaStream_t which, enum cudaStreamCaptureMode mode) {
    static unsigned long long captures;
    NEEDS_CONTEXT();
    Stream *stream = stream_of(which);
    if (stream == &default_streams[stream->device]) return failed(cudaErrorStreamCaptureUnsupported);
    Graph *graph = calloc(1, sizeof *graph);
    stream->capture_id = ++captures;
    graph->id = (uint32_t)captures;
    stream->capture = graph;
    return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t which, cudaGraph_t *made) {
    Graph *graph = stream_of(which)->capture;
    if (!graph) return failed(cudaErrorInvalidValue);
    for (Stream *stream = streams; stream; stream = stream->next)
        if (stream->capture == graph) stream->capture = NULL;
    *made = (cudaGraph_t)graph;
    NEEDS_CONTEXT();
    return cudaSuccess;
}
static enum cudaStreamCaptureStatus status_of(cudaStream_t stream) {
    return stream_of(stream)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = status_of(stream);
    return cudaSuccess;
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                         cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                         const cudaGraphEdgeData **edges, size_t *n) {
    *status = status_of(stream);
    if (id) *id = stream_of(stream)->capture_id;
    if (graph) *graph = (cudaGraph_t)stream_of(stream)->capture;
    if (nodes) *nodes = NULL;
    if (edges) *edges = NULL;
    if (n) *n = 0;
    return cudaSuccess;
}
API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *e,
                                                    size_t n, unsigned flags) {
    return cudaSuccess;
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    static __thread enum cudaStreamCaptureMode now;
    enum cudaStreamCaptureMode before = now;
    now = *mode;
    *mode = before;
    return cudaSuccess;
}
API cudaError_t cudaGraphGetNodes(cudaGraph_t which, cudaGraphNode_t *nodes, size_t *n) {
    Graph *graph = (Graph *)which;
    for (size_t i = 0; nodes && i < *n && (int)i < graph->count; i++) nodes[i] = (cudaGraphNode_t)(graph->works + i);
    *n = (size_t)graph->count;
    return cudaSuccess;
}
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t which, unsigned long long flags) {
    Graph *graph = (Graph *)which, *copied = malloc(sizeof *copied);
    *copied = *graph;
    copied->works = malloc(sizeof(Work) * (size_t)(graph->count + 1));
    memcpy(copied->works, graph->works, sizeof(Work) * (size_t)graph->count);
    *made = (cudaGraphExec_t)copied;
    return cudaSuccess;
}
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(made, graph, flags);
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t which, cudaStream_t stream) {
    NEEDS_CONTEXT();
    Graph *graph = (Graph *)which;
    double called = standin_now();
    uint32_t correlation = next_correlation();
    __sync_add_and_fetch(&standin_state()->graph_launches, 1);
    for (int i = 0; i < graph->count; i++) {
        Work work = graph->works[i];
        work.graph = graph->id;
        cudaError_t error = launch(stream_of(stream), work, NULL);
        if (error) return error;
    }
    call_done("cudaGraphLaunch", correlation, called);
    return cudaSuccess;
}
API cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) { return cudaSuccess; }
static cudaError_t freed(Graph *graph) {
    free(graph->works);
    free(graph);
    return cudaSuccess;
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return freed((Graph *)graph); }
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return freed((Graph *)graph); }
API cudaError_t cudaUserObjectCreate(cudaUserObject_t *made, void *data, cudaHostFn_t d, unsigned n, unsigned flags) {
    *made = (cudaUserObject_t)data;
    return cudaSuccess;
}
API cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned n) { return cudaSuccess; }
API cudaError_t cudaGraphRetainUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned n, unsigned f) { return cudaSuccess; }
