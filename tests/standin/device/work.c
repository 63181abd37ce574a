/* libcudart, the heart: a launch is put on its stream's timeline, counted on the page, and met by planned faults.

   Work starts when its stream is free, and not before the host has given it; it lasts as long as the plan says. Nothing
   is computed: copies and memset move bytes, kernels do not (but see fill() in kernels.c). */
#include "work.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATENCY_NS 2000      /* from the call to the earliest start */
#define LONGEST_QUEUE_NS 2e9 /* a host that is this far ahead waits, as one does when the queue is full */

void (*standin_on_work)(const Work *);
void (*standin_on_call)(const char *, uint32_t, double, double);
pthread_mutex_t standin_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- faults ---- */
static cudaError_t sticky;
static __thread cudaError_t last;
int standin_fault(void) { return sticky; }
cudaError_t failed(cudaError_t error) {
    if (error && error != cudaErrorNotReady) last = error;
    return error;
}
API cudaError_t cudaGetLastError(void) {
    cudaError_t error = sticky ? sticky : last;
    last = cudaSuccess;
    return error;
}
API cudaError_t cudaPeekAtLastError(void) { return sticky ? sticky : last; }

cudaError_t ready(void) {
    static int made;
    if (!made) {
        made = 1;
        standin_process()->used_bytes[current_device] += (uint64_t)standin_plan()->context_mib << 20;
    }
    if (standin_state()->lost) sticky = cudaErrorUnknown;
    return sticky;
}

/* Launches that count for faults and for what changes later: all of a process's, or those from its first backward convolution on. */
static uint64_t counted(const Work *work) {
    static uint64_t count;
    static int training;
    training |= !standin_plan()->fault_in_training || strstr(work->name, "wgrad") != NULL;
    return training ? ++count : 0;
}
static int meets(double planned) { return planned == -1 || planned == standin_context(); }
static void plan_fault(const Work *work, double *lasts) {
    const Plan *plan = standin_plan();
    uint64_t count = counted(work);
    if (plan->later_launch && count >= (uint64_t)plan->later_launch) standin_state()->later = 1;
    if (count != (uint64_t)plan->fault_launch) return;
    if (meets(plan->illegal_address_in)) sticky = cudaErrorIllegalAddress;
    if (meets(plan->launch_failure_in)) sticky = cudaErrorLaunchFailure;
    if (meets(plan->ecc_error_in)) sticky = cudaErrorECCUncorrectable;
    if (meets(plan->unknown_error_in) || meets(plan->lost_in)) sticky = cudaErrorUnknown;
    if (meets(plan->lost_in)) standin_state()->lost = 1;
    if (meets(plan->endless_in)) *lasts = INFINITY;
    if (meets(plan->kill_in)) kill(getpid(), SIGKILL);
    while (meets(plan->hang_in)) pause();
}

/* ---- how long a work lasts ---- */
static double flop_rate(Unit unit) { /* FLOP per ns */
    const Plan *plan = standin_plan();
    double tflops[UNITS] = {plan->fp32_tflops, plan->tf32_tflops, plan->half_tflops, plan->fp64_tflops};
    return tflops[unit] * 1e3 * plan->efficiency;
}
static int is_convolution(const char *name) { /* of cudnn.c */
    return !strcmp(name, "standin_fprop") || !strcmp(name, "standin_dgrad") || !strcmp(name, "standin_wgrad");
}
static double duration(const Work *work, uint64_t launches) {
    const Plan *plan = standin_plan();
    int over_bus = work->copy_kind == cudaMemcpyHostToDevice || work->copy_kind == cudaMemcpyDeviceToHost;
    double ns = plan->kernel_ns;
    int moved = work->kind == COPY && !over_bus ? 2 : 1; /* a copy on the device reads and writes */
    if (work->asked_ns > 0) return work->asked_ns;
    if (work->kind != KERNEL) ns = moved * work->bytes / (over_bus ? plan->host_gbps : plan->memory_gbps);
    else if (work->flop > 0 && plan->efficiency > 0) ns = work->flop / flop_rate(work->unit);
    else if (work->bytes > 0 && plan->elementwise_gbps > 0) ns = work->bytes / plan->elementwise_gbps;
    if (is_convolution(work->name)) ns *= plan->convolution_scale;
    int slower = plan->wave_launches > 0 && launches / (uint64_t)plan->wave_launches % 2;
    if (slower) ns *= 1 + plan->wave_ratio;
    if (work->kind == KERNEL) ns *= plan->sm_mhz / standin_mhz(); /* the plan's times are those of its first clock */
    return ns * (1 + plan->drift_per_launch * (double)launches);
}

/* ---- a launch ---- */
static uint32_t correlations;
uint32_t next_correlation(void) { return __sync_add_and_fetch(&correlations, 1); }
void call_done(const char *name, uint32_t correlation, double start) {
    if (standin_on_call && name) standin_on_call(name, correlation, start, standin_now());
}

static void capture(Graph *graph, Work work) {
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 64;
        graph->works = realloc(graph->works, sizeof(Work) * (size_t)graph->room);
    }
    graph->works[graph->count++] = work;
}

static void place(Stream *stream, Work *work) {
    static uint64_t launches;
    State *page = standin_state();
    standin_call();
    if (work->kind == KERNEL) launches++;
    double gap = work->kind == KERNEL ? standin_plan()->gap_ns : 0;
    double lasts = duration(work, launches), start = stream->end + gap;
    if (work->kind == KERNEL) plan_fault(work, &lasts);
    if (start < standin_host() + LATENCY_NS) start = standin_host() + LATENCY_NS;
    work->start = start;
    work->end = stream->end = start + lasts;
    work->stream = stream->id;
    work->device = stream->device;
    work->correlation = next_correlation();
    if (isfinite(lasts)) { /* for NVML, in real time: what is given is worked off without a pause */
        page->busy_until = lasts + (page->busy_until > standin_now() ? page->busy_until : standin_now());
        __sync_add_and_fetch(&page->busy_ns, (uint64_t)lasts);
    }
    if (work->kind == KERNEL) __sync_add_and_fetch(&page->launches, 1);
    if (work->flop > 0) __sync_add_and_fetch(&page->flop[work->unit], (uint64_t)work->flop);
}

/* A recording has the machine's times, so that kernels lie beside the calls of a host that is as slow as it is: a work
   starts once it was given, and when the one before it has ended, by those times. */
static void show(Stream *stream, Work *work) {
    double gap = work->kind == KERNEL ? standin_plan()->gap_ns : 0, lasts = work->end - work->start;
    work->start = stream->shown_end + gap;
    if (work->start < standin_now() + LATENCY_NS) work->start = standin_now() + LATENCY_NS;
    work->end = stream->shown_end = work->start + lasts;
    standin_show_until(work->end);
    standin_on_work(work);
}

cudaError_t launch(Stream *stream, Work work, const char *call) {
    NEEDS_CONTEXT();
    double called = standin_now();
    if (stream->capture) {
        capture(stream->capture, work);
        return cudaSuccess;
    }
    pthread_mutex_lock(&standin_mutex);
    place(stream, &work);
    pthread_mutex_unlock(&standin_mutex);
    size_t bytes = (size_t)work.bytes;
    if (work.kind == COPY && bytes) memmove(work.to, work.from, bytes);
    if (work.kind == SET && bytes) memset(work.to, work.value, bytes);
    if (standin_on_work) show(stream, &work);
    call_done(call, work.correlation, called);
    if (stream->end - standin_host() > LONGEST_QUEUE_NS) standin_wait(stream->end - LONGEST_QUEUE_NS / 2);
    return cudaSuccess; /* a fault shows at the next call, as faults of kernels do */
}

int standin_launch(const char *name, void *stream, double flop, Unit unit) {
    if (unit == FP32 && standin_plan()->tf32_always) unit = TF32;
    else if (unit == TF32 && standin_plan()->tf32_never) unit = FP32;
    Work work = {.kind = KERNEL, .name = name, .grid = {1, 1, 1}, .block = {128, 1, 1}, .flop = flop, .unit = unit};
    return launch(stream_of(stream), work, "cudaLaunchKernel");
}
