/* What the libraries of the stand-in share. Everything declared here lives in the stand-in's libcudart (plan.c, work.c);
   the other libraries are linked against it. Times are nanoseconds of CLOCK_MONOTONIC unless a name says otherwise. */
#ifndef STANDIN_H
#define STANDIN_H
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))
#define MAX_PROCESSES 64
#define MAX_DEVICES 8

/* ---- the plan (plan.def) ---- */
typedef struct {
#define NUMBER(name, otherwise, meaning) double name;
#include "plan.def"
#undef NUMBER
} Plan;
API const Plan *standin_plan(void);
API const char *standin_name(void); /* "Stand-in of ...": no plan can leave the mark out */

/* ---- the state: one page in a file (STANDIN_STATE), shared by all processes that use the device ---- */
typedef enum { FP32, TF32, HALF, FP64, UNITS } Unit;
typedef struct {
    int32_t pid, pad;
    uint64_t used_bytes[MAX_DEVICES];
} Process;
typedef struct {
    uint64_t magic;
    uint64_t launches;    /* kernels, of all processes */
    uint64_t flop[UNITS]; /* of products and convolutions, by the unit that ran them */
    uint64_t busy_ns;     /* planned durations, added up */
    uint64_t allocations, peak_bytes, contexts, lost, power_readings;
    uint64_t later; /* 1: the launch later_launch has been */
    uint64_t graph_launches;
    double busy_until, born;
    Process process[MAX_PROCESSES];
} State;
API State *standin_state(void);
API Process *standin_process(void);
API uint64_t standin_used(int device);
API double standin_mhz(void); /* the clock of the multiprocessors now */
API int standin_context(void); /* the number of this process's context, from 1 */

/* ---- clocks ---- */
API double standin_now(void);      /* the machine's */
API double standin_host(void);     /* this process's: advances by call_ns a call, and by waiting */
API void standin_call(void);       /* one call has been made */
API void standin_wait(double end); /* until a moment of standin_host() */
API void standin_show_until(double end); /* a recording has work until then, by the machine's clock: waiting ends no sooner */

/* ---- a call that nobody wrote ---- */
API void standin_missing(const char *name); /* one line in the file STANDIN_MISSING; the test fails by it */

/* ---- work ---- */
typedef enum { KERNEL, COPY, SET } Kind;
typedef struct {
    Kind kind;
    const char *name;
    unsigned grid[3], block[3];
    int shared_bytes, copy_kind; /* cudaMemcpyKind */
    double flop;                 /* 0: not known */
    Unit unit;
    double bytes;
    double asked_ns; /* a kernel that sleeps: for so long */
    void *to;
    const void *from;
    int value;
    /* filled in when it is launched */
    uint32_t correlation, stream, graph;
    int device;
    double start, end;
} Work;
API int standin_launch(const char *name, void *stream, double flop, Unit unit); /* a library's kernel; cudaError_t */
API int standin_fault(void);                                                    /* the sticky error, or 0 */

/* CUPTI sets these while somebody records */
extern API void (*standin_on_work)(const Work *);
extern API void (*standin_on_call)(const char *name, uint32_t correlation, double start, double end);
#endif
