/* Streams and captured graphs, as the files of libcudart share them. */
#ifndef STANDIN_WORK_H
#define STANDIN_WORK_H
#include "standin.h"
#include <cuda_runtime_api.h>
#include <pthread.h>

typedef struct Graph {
    Work *works;
    int count, room;
    uint32_t id;
} Graph;
typedef struct Stream {
    double end;       /* of the last work given to it */
    double shown_end; /* the same in a recording, by the machine's clock */
    unsigned flags;
    int priority, device;
    uint32_t id;
    Graph *capture; /* while it is being captured, work goes here */
    unsigned long long capture_id;
    struct Stream *next;
} Stream;

extern Stream default_streams[MAX_DEVICES], *streams;
extern pthread_mutex_t standin_mutex;
extern __thread int current_device;

Stream *stream_of(cudaStream_t stream);
cudaError_t failed(cudaError_t error);      /* remembers it for cudaGetLastError */
cudaError_t ready(void);                    /* makes the context; the sticky error, if there is one */
cudaError_t launch(Stream *stream, Work work, const char *call);
void call_done(const char *name, uint32_t correlation, double start);
uint32_t next_correlation(void);
cudaError_t device_memory(void **at, size_t bytes);
int within_allocation(const void *at, size_t bytes);
#define NEEDS_CONTEXT()                     \
    do {                                    \
        cudaError_t fault_ = ready();       \
        if (fault_) return failed(fault_);  \
    } while (0)
#endif
